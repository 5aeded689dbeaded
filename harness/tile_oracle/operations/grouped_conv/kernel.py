"""Grouped convolution kernels: name and fields convert both ways without loss.

A name is the published one, followed by a token for each field that differs from what a published name
implies:

    grouped_conv_{direction}_{dtype}_{ndim}d_{tile}_{pipeline}_{scheduler}[_dsb][_si]
        [_w{waves}][_wt{warp tile}][_v{vector widths}][_epdefault][_gm{groups}][_eg][_2s]
        [_f1x1p0|_f1x1s1p0|_f3x3][_pad{mnk bits}]

Implied are: waves and warp tile for the ten published tiles (names of other tiles state both), vector widths
4x8x8, epilogue cshuffle, one group per tile, specialization Default, all paddings on. Published names without
a scheduler mean intrawave. The oldest ones do not state buffering either: compv4 and comp_async, which exist
only double-buffered, then mean double_smem_buffer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import PIPELINE_NAME, TiledKernel, triple, triple_of
from tile_oracle.operation.flat import shortened
from tile_oracle.operation.search_axes import sizes
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES

PUBLISHED_TILES: dict[tuple[int, int, int], tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    (16, 64, 64): ((1, 4, 1), (16, 16, 16)),
    (32, 64, 64): ((2, 2, 1), (16, 16, 16)),
    (64, 64, 64): ((4, 1, 1), (16, 16, 16)),
    (32, 128, 64): ((1, 4, 1), (32, 32, 16)),
    (64, 128, 64): ((2, 2, 1), (32, 32, 16)),
    (128, 128, 64): ((4, 4, 1), (32, 32, 16)),
    (16, 64, 128): ((1, 4, 1), (16, 16, 32)),
    (32, 64, 128): ((2, 2, 1), (16, 16, 32)),
    (64, 64, 128): ((4, 1, 1), (16, 16, 32)),
    (128, 64, 128): ((8, 2, 1), (16, 16, 32)),
}
"""Published tile (m, n, k) -> (waves, warp tile), which published names omit."""

PUBLISHED_VECTORS = (4, 8, 8)

_TWO_BUFFERS_ONLY = ("compv4", "comp_async")

SPECIALIZATION_TOKENS = {
    "Default": "", "Filter1x1Pad0": "f1x1p0", "Filter1x1Stride1Pad0": "f1x1s1p0", "Filter3x3": "f3x3"
}  # fmt: skip
"""Convolution specialization, as Composable Kernel calls it -> its token in a kernel's name."""
SPECIALIZATIONS = tuple(SPECIALIZATION_TOKENS)


@dataclass(frozen=True)
class GroupedConvKernel(TiledKernel):
    """One implicit-GEMM convolution kernel: every field that changes its code.

    tile_{m,n,k}: output rows, output columns and depth of a workgroup's tile (elements). wave_{m,n,k}: waves
    along each axis of the tile. warp_tile_{m,n,k}: the tile of one matrix instruction sequence of a wave (on
    cpu: the register micro-tile). vector_{a,b,c}: elements per global load or store of A, B and C.
    pad_{m,n,k}: whether partial tiles along that axis are handled. specialization: the problems that the code
    is for. Default: all; Filter1x1Pad0: 1x1 filters without padding; Filter1x1Stride1Pad0: these with stride
    1; Filter3x3: 3x3 (3x3x3) filters with one input channel per group.
    """

    direction: str
    dtype: str
    ndim: int
    tile_m: int
    tile_n: int
    tile_k: int
    wave_m: int
    wave_n: int
    wave_k: int
    warp_tile_m: int
    warp_tile_n: int
    warp_tile_k: int
    vector_a: int = PUBLISHED_VECTORS[0]
    vector_b: int = PUBLISHED_VECTORS[1]
    vector_c: int = PUBLISHED_VECTORS[2]
    pipeline: str = "compv3"
    scheduler: str = "intrawave"
    epilogue: str = "cshuffle"
    double_smem_buffer: bool = False
    split_image: bool = False
    num_groups_to_merge: int = 1
    explicit_gemm: bool = False
    two_stage: bool = False
    pad_m: bool = True
    pad_n: bool = True
    pad_k: bool = True
    specialization: str = "Default"

    op: ClassVar[str] = "grouped_conv"
    words: ClassVar[Mapping[str, tuple[str | int, ...]]] = {
        "direction": DIRECTIONS,
        "dtype": DTYPES,
        "ndim": (2, 3),
        "specialization": SPECIALIZATIONS,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.two_stage and self.direction != "bwd_weight":
            raise KernelError(f"two_stage is for bwd_weight, not {self.direction}")

    @property
    def waves(self) -> tuple[int, int, int]:
        return (self.wave_m, self.wave_n, self.wave_k)

    @property
    def vectors(self) -> tuple[int, int, int]:
        return (self.vector_a, self.vector_b, self.vector_c)

    @cached_property
    def short_name(self) -> str:
        """The name without operation, direction, dtype and rank, which a matching problem has."""
        waves, warp_tile = PUBLISHED_TILES.get(self.tile, (None, None))
        stated = (
            ("dsb", self.double_smem_buffer),
            ("si", self.split_image),
            ("w" + triple(self.waves), self.waves != waves),
            ("wt" + triple(self.warp_tile), self.warp_tile != warp_tile),
            ("v" + triple(self.vectors), self.vectors != PUBLISHED_VECTORS),
            ("ep" + self.epilogue, self.epilogue != "cshuffle"),
            (f"gm{self.num_groups_to_merge}", self.num_groups_to_merge != 1),
            ("eg", self.explicit_gemm),
            ("2s", self.two_stage),
            (SPECIALIZATION_TOKENS[self.specialization], self.specialization != "Default"),
            (f"pad{self.pad_m:d}{self.pad_n:d}{self.pad_k:d}", not all(self.paddings)),
        )
        tokens = (token for token, differs in stated if differs)
        return "_".join((triple(self.tile), self.pipeline, self.scheduler, *tokens))


@lru_cache(maxsize=65536)
def parse_grouped_conv_name(name: str) -> GroupedConvKernel:
    """Returns the kernel of a full name; published names with and without a scheduler are accepted too.

    Raises KernelError, which names the part that cannot be read.
    """
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise KernelError(
            f"{shortened(name)} is not a kernel name; one looks like "
            "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave_dsb_si"
        )
    part = match.groupdict()
    tile = triple_of(part["tile"])
    waves, warp_tile = PUBLISHED_TILES.get(tile, (None, None))
    if part["w"]:
        waves = triple_of(part["w"])
    if part["wt"]:
        warp_tile = triple_of(part["wt"])
    if waves is None or warp_tile is None:
        raise KernelError(
            f"{shortened(name)} must name its waves and warp tile (_w1x4x1_wt16x16x16): "
            f"{part['tile']} is not one of the published tiles, which imply them"
        )
    vectors = triple_of(part["v"]) if part["v"] else PUBLISHED_VECTORS
    buffered = part["scheduler"] is None and part["pipeline"] in _TWO_BUFFERS_ONLY
    return GroupedConvKernel.from_row(
        {
            **part,
            **sizes(tile=tile, wave=waves, warp_tile=warp_tile),
            **{f"vector_{operand}": width for operand, width in zip("abc", vectors, strict=True)},
            **{f"pad_{axis}": bit == "1" for axis, bit in zip("mnk", part["pad"] or "111", strict=True)},
            "scheduler": part["scheduler"] or "intrawave",
            "epilogue": part["ep"] or "cshuffle",
            "double_smem_buffer": part["dsb"] is not None or buffered,
            "split_image": part["si"] is not None,
            "num_groups_to_merge": part["gm"] or 1,
            "explicit_gemm": part["eg"] is not None,
            "two_stage": part["two"] is not None,
            "specialization": _SPECIALIZATION_OF[part["special"] or ""],
        }
    )


_SPECIALIZATION_OF = {token: name for name, token in SPECIALIZATION_TOKENS.items()}
_T = r"[1-9][0-9]{0,6}x[1-9][0-9]{0,6}x[1-9][0-9]{0,6}"
_NAME = re.compile(
    rf"grouped_conv_(?P<direction>{'|'.join(DIRECTIONS)})_(?P<dtype>[a-z0-9]+)_(?P<ndim>[23])d_(?P<tile>{_T})"
    rf"_(?P<pipeline>{PIPELINE_NAME.pattern})(?:_(?P<scheduler>intrawave|interwave))?(?P<dsb>_dsb)?(?P<si>_si)?"
    rf"(?:_w(?P<w>{_T}))?(?:_wt(?P<wt>{_T}))?(?:_v(?P<v>{_T}))?(?:_ep(?P<ep>default))?"
    rf"(?:_gm(?P<gm>[1-9][0-9]{{0,6}}))?(?P<eg>_eg)?(?P<two>_2s)?"
    rf"(?:_(?P<special>{'|'.join(filter(None, SPECIALIZATION_TOKENS.values()))}))?(?:_pad(?P<pad>[01]{{3}}))?"
)
