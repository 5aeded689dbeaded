"""nvMatmulHeuristics, NVIDIA's analytical model of matrix products, for kernels in Triton.

It needs the package nvidia-matmul-heuristics, and a CPU alone: the GPU is one of its predefined ones. It
chooses a tile, warps, stages and split-K; which Triton function runs is not its matter, so its choices mean
kernels of the functions `tiles` and `split_k` where the pool has such, else all that have a tile.

Its discovery set holds times that are measured on the user's GPU for kernels of its own choice. It does not
restrict what it chooses, so a pool cannot be given to it, and choices outside of the pool are mapped.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

from tile_oracle.errors import ModelError
from tile_oracle.kernel import FAMILY, Kernel
from tile_oracle.pickers.picker import Configuration, has_a_tile
from tile_oracle.problem import Problem

_MODULE, PACKAGE = "nvMatmulHeuristics", "nvidia-matmul-heuristics"
GPUS = {"sm_80": "A100_SXM_80GB", "sm_90": "H200_SXM", "sm_100": "B200"}
"""Architecture -> the predefined GPU whose figures it calculates with. TILE_ORACLE_NVMATMUL_GPU names another
one, such as H100_SXM."""
_GPU_VARIABLE = "TILE_ORACLE_NVMATMUL_GPU"
_PRECISION = {"bf16": "TST", "fp16": "HSH", "fp32": "SSS"}
_LAYOUTS = {"rcr": "NT_ROW_MAJOR", "rrr": "NN_ROW_MAJOR", "crr": "TN_ROW_MAJOR", "ccr": "TT_ROW_MAJOR"}
"""Our layouts, A, B and C row or column major, in its words: whether A and B are transposed."""
_CHOICES = 3
_CLASSIC = ("tiles", "split_k")


@dataclass(frozen=True)
class NvMatmul:
    """The picker for one predefined GPU."""

    gpu: str
    name: str = "nvmatmul"
    maps: bool = True

    @property
    def identity(self) -> str:
        """The package's version, and what it was asked for."""
        return f"{PACKAGE} {version(PACKAGE)}, target TRITON, its performance model, {self.gpu}"

    def pick(self, problem: Problem, pool: Sequence[Kernel]) -> Sequence[Configuration]:
        """As Asked.pick: its first choices. None for other operations and data types."""
        precision = _PRECISION.get(problem.dtype)
        layout = _LAYOUTS.get(str(getattr(problem, "layout", "")))
        if problem.op != "gemm" or precision is None or layout is None:
            return ()
        library, hardware, layouts = self._library(precision, layout)
        m, n, k = (int(getattr(problem, name)) for name in "MNK")
        found = library.get_with_mnk(m, n, k, layouts[layout], _CHOICES, hardware)
        classic = any(_is_classic(kernel) for kernel in pool)
        among = _is_classic if classic else _has_a_tile
        return [Configuration(_values(one["kernel"]), among) for one in found]

    def _library(self, precision: str, layout: str) -> tuple[Any, Any, Any]:
        """Returns the library for a precision, its GPU and its layouts, with its discovery set of the layout.
        It is
        never destroyed: version 0.1.0.27 crashes the process then."""
        if (precision, layout) not in self._loaded:
            module = importlib.import_module(_MODULE)
            kept = type("Kept", (module.NvMatmulHeuristicsInterface,), {"__del__": lambda library: None})
            flags = module.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING
            library = kept(module.NvMatmulHeuristicsTarget.TRITON, precision=precision, flags=flags)
            hardware = library.createHardwareDescriptor()
            library.setHardwarePredefinedGpu(hardware, module.NvMatmulHeuristicsNvidiaGpu[self.gpu])
            layouts = module.NvMatmulHeuristicsMatmulLayout
            library.loadInternalDiscoverySet(layouts[layout], hardware)
            self._loaded[precision, layout] = library, hardware, layouts
        return self._loaded[precision, layout]

    @cached_property
    def _loaded(self) -> dict[tuple[str, str], tuple[Any, Any, Any]]:
        return {}


def _values(kernel: Any) -> dict[str, int]:
    tile = {f"tile_{one}": int(getattr(kernel, f"cta_tile_{one}")) for one in "mnk"}
    warps = 1
    for one in "mn":
        warps *= tile[f"tile_{one}"] // int(getattr(kernel, f"warp_tile_{one}"))
    return {**tile, "split_k": int(kernel.split_k), "warps": warps, "stages": int(kernel.stages)}


def _has_a_tile(kernel: Kernel) -> bool:
    return kernel.source != FAMILY and has_a_tile(kernel)


def _is_classic(kernel: Kernel) -> bool:
    return _has_a_tile(kernel) and kernel.function in _CLASSIC


def picker(arch: str) -> NvMatmul:
    """Returns the picker for an architecture. Raises ModelError without the package, or for a GPU that it
    does not know."""
    if importlib.util.find_spec(_MODULE) is None:
        raise ModelError(f"the picker nvmatmul needs {PACKAGE}: pip install 'tile-oracle[nvmatmul]'")
    gpu = os.environ.get(_GPU_VARIABLE) or GPUS.get(arch, "")
    known = importlib.import_module(_MODULE).NvMatmulHeuristicsNvidiaGpu.__members__
    if gpu not in known:
        raise ModelError(
            f"the picker nvmatmul knows no GPU {gpu or arch!r}: set {_GPU_VARIABLE} to one of "
            + ", ".join(known)
        )
    return NvMatmul(gpu)
