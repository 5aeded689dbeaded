"""GEMM kernels. Name and fields convert both ways without loss.

The name is the published one and has every field:

    gemm_{dtype}_{layout}_{pipeline}_{epilogue}_{scheduler}_{pad_m}_{pad_n}_{pad_k}_{persistent}
        _{tile}_{warps}_{warp tile}

with True or False for the four flags and sizes written as 256x128x64. Published names that begin with
gemm_universal_ or gemm_preshuffle_ are also read. Pipelines preshufflevN take B shuffled before the kernel
runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import EPILOGUES, PIPELINE_NAME, SCHEDULERS, TiledKernel, triple, triple_of
from tile_oracle.operation.flat import shortened
from tile_oracle.operation.search_axes import sizes
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS


@dataclass(frozen=True)
class GemmKernel(TiledKernel):
    """One GEMM kernel: every field that changes its code.

    tile_{m,n,k}: rows, columns and depth of a workgroup's tile (elements). warp_{m,n,k}: waves along each
    axis of the tile. warp_tile_{m,n,k}: the tile of one matrix instruction sequence of a wave (on cpu: the
    register micro-tile). pad_{m,n,k}: whether partial tiles along that axis are handled. persistent:
    workgroups stay on their compute unit and take further tiles.
    """

    dtype: str
    layout: str
    tile_m: int
    tile_n: int
    tile_k: int
    warp_m: int
    warp_n: int
    warp_k: int
    warp_tile_m: int
    warp_tile_n: int
    warp_tile_k: int
    pipeline: str = "compv3"
    scheduler: str = "intrawave"
    epilogue: str = "cshuffle"
    pad_m: bool = False
    pad_n: bool = False
    pad_k: bool = False
    persistent: bool = False

    op: ClassVar[str] = "gemm"
    words: ClassVar[Mapping[str, tuple[str | int, ...]]] = {"dtype": GEMM_DTYPES, "layout": GEMM_LAYOUTS}

    @property
    def waves(self) -> tuple[int, int, int]:
        return (self.warp_m, self.warp_n, self.warp_k)

    @property
    def preshuffle(self) -> bool:
        """Whether B is reordered for the matrix instructions before the kernel runs."""
        return self.pipeline.startswith("preshuffle")

    @cached_property
    def short_name(self) -> str:
        """The name without operation, dtype and layout, which a matching problem has."""
        flags = (*self.paddings, self.persistent)
        sizes = (self.tile, self.waves, self.warp_tile)
        tokens = (self.pipeline, self.epilogue, self.scheduler, *map(str, flags), *map(triple, sizes))
        return "_".join(tokens)


@lru_cache(maxsize=65536)
def parse_gemm_name(name: str) -> GemmKernel:
    """Returns the GEMM kernel of a full name. Raises KernelError, which names the part that cannot be
    read."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise KernelError(
            f"{shortened(name)} is not a GEMM kernel name; one looks like "
            "gemm_bf16_rcr_compv3_cshuffle_intrawave_False_False_False_False_256x128x64_2x2x1_32x32x16"
        )
    part = match.groupdict()
    triples = {"tile": part["tile"], "warp": part["warps"], "warp_tile": part["warp_tile"]}
    return GemmKernel.from_row(part | sizes(**{name: triple_of(text) for name, text in triples.items()}))


_T = r"[1-9][0-9]{0,6}x[1-9][0-9]{0,6}x[1-9][0-9]{0,6}"
_FLAGS = "".join(f"_(?P<{flag}>True|False)" for flag in ("pad_m", "pad_n", "pad_k", "persistent"))
_NAME = re.compile(
    rf"gemm_(?:universal_|preshuffle_)?(?P<dtype>[a-z0-9]+)_(?P<layout>[a-z]{{3}})"
    rf"_(?P<pipeline>{PIPELINE_NAME.pattern})_(?P<epilogue>{'|'.join(EPILOGUES)})"
    rf"_(?P<scheduler>{'|'.join(SCHEDULERS)}){_FLAGS}_(?P<tile>{_T})_(?P<warps>{_T})_(?P<warp_tile>{_T})"
)
