"""Translation units of kernels/cpu."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tile_oracle.errors import KernelError

if TYPE_CHECKING:
    from tile_oracle.kernel import TiledKernel

CPU_PIPELINES: Mapping[str, str] = MappingProxyType(
    {"basic_v1": "TO_DIRECT", "mem": "TO_PACK_B", "compv3": "TO_PACK_AB", "compv4": "TO_PACK_AB_DOUBLE"}
)
"""Pipeline -> its name in kernels/cpu."""


def cpu_source(kernel: TiledKernel, direction: str, ndim: int, transposed: bool = False) -> str:
    """Returns the translation unit of a kernel that runs as a convolution. transposed: it writes its result
    transposed.

    Raises KernelError for a pipeline without code.
    """
    if kernel.pipeline not in CPU_PIPELINES:
        raise KernelError(
            f"pipeline {kernel.pipeline!r} has no code for cpu: it has {', '.join(CPU_PIPELINES)}"
        )
    macros = {
        "TO_DIRECTION": f"TO_{direction.upper()}",
        "TO_DTYPE": f"TO_{kernel.dtype.upper()}",
        "TO_NDIM": ndim,
        **{f"TO_TILE_{axis}": size for axis, size in zip("MNK", kernel.tile, strict=True)},
        "TO_MICRO_M": kernel.warp_tile[0],
        "TO_MICRO_N": kernel.warp_tile[1],
        "TO_PIPELINE": CPU_PIPELINES[kernel.pipeline],
    }
    if transposed:
        macros["TO_TRANSPOSED"] = 1
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([*lines, '#include "grouped_conv.hpp"', ""])
