"""A plugin (`-p`) by which the GPU kernels of a whole pytest session misbehave.

EVIL_GPU_HEADERS names the folder that replaces kernels/gpu. With EVIL_GPU_POOL, a JSON list of (mode,
variant), the pool of every problem consists of those kernels of evil_gpu.py, and no rule refuses one.
Everything else is the session's own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.evil_gpu_kernels.evil_gpu import evil_gpu_kernel
from tile_oracle.compiling import kernel_source
from tile_oracle.compiling.native import native_source
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.targets import resolve
from tile_oracle.targets.target import Target


def _nothing_refused(self: Target, kernel: Kernel, problem: Problem) -> str | None:
    return None


def _misbehave() -> None:
    headers = Path(os.environ["EVIL_GPU_HEADERS"])
    resolve.open_kernel_source = lambda arch, word: native_source(arch, headers)
    asked = os.environ.get("EVIL_GPU_POOL")
    if asked is not None:
        pool = tuple(evil_gpu_kernel(mode, variant) for mode, variant in json.loads(asked))
        kernel_source.pool_of_kind = lambda kind, **_: pool  # type: ignore[assignment]
        Target.refusal = _nothing_refused  # type: ignore[method-assign]


_misbehave()
