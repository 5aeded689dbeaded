"""Descriptors of operations whose own kernels, for the target cpu, differ in a few sizes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.least_work import least_work_of_products
from tile_oracle.operation.part import deferred, part
from tile_oracle.problem import Problem


def sized_operation(
    problem: type[Problem], kernel: type[SizedKernel], package: str | None, **own: Any
) -> Operation:
    """Returns the descriptor of an operation whose parts lie in its package under the names used here.

    own: the fields of `Operation` that differ, or that it has besides.
    """
    worker = part(".on_device:WORKER", package)
    of_package: dict[str, Any] = {
        "parse_kernel": kernel.parse,
        "short_names": "_".join(f"{name}[0-9]+" for name in kernel.sizes),
        "read_rules": partial(deferred("tile_oracle.pool.sized_block:read_block"), kernel),
        "rules_folder": Path(sys.modules[package or ""].__path__[0]) / "rules",
        "refusals": deferred("tile_oracle.pool.sized_block:refusals"),
        "cpu_source": deferred(".cpu_source:cpu_source", package),
        "on_device": worker,
        "on_gpu": worker,
        "least_work": least_work_of_products,
        "triton_view": part(".triton_view:View", package),
        "features": part(".features:FEATURES", package),
    }
    return Operation(problem=problem, kernel=kernel, **(of_package | own))
