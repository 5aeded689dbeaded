"""Common parts of kernel fields and names: allowed words, limits, reading of table cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from tile_oracle.errors import KernelError
from tile_oracle.operation import operation_named
from tile_oracle.operation.flat import Flat, shortened

SCHEDULERS = ("intrawave", "interwave")
EPILOGUES = ("cshuffle", "default", "tdm")

PIPELINE_NAME = re.compile(
    r"mem|comp_async|comp_tdm(?:_v[0-9]{1,2})?|compv[0-9]{1,2}|basic_v[0-9]{1,2}|basic_async_v[0-9]{1,2}|preshufflev[0-9]{1,2}"
)

FAMILY = ""
"""The source of the kernels that have an operation's own fields, whoever builds them."""
MAX_NUMBER = 1 << 20

LATER_FIELDS: Mapping[str, str] = {"specialization": "Default"}
"""Fields that older records lack, with the value that every older kernel has."""


@dataclass(frozen=True)
class FlatKernel(Flat):
    """Base of kernels whose fields are texts and numbers: all that follows from them and the descriptor.

    A kernel class adds its checks and `short_name`.
    """

    refused = KernelError
    later = LATER_FIELDS
    source: ClassVar[str] = FAMILY
    function: ClassVar[str] = ""
    configuration: ClassVar[Mapping[str, int | bool | str]] = MappingProxyType({})

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str:
            """The data type of the operands."""

        @property
        def short_name(self) -> str:
            """The name without the fields that a matching problem has."""

    @cached_property
    def name(self) -> str:
        """The full name, from which every field can be read back: the kind's prefix and the short name."""
        return operation_named(self.op).kernel_prefix(self.kind) + self.short_name

    def matches(self, problem: Any) -> bool:
        """Returns whether the kernel is for the problem's kind."""
        return bool(self.kind == problem.kind)


class TiledKernel(FlatKernel):
    """Base of kernels that multiply matrices tile by tile, as in kernels/ and CK Tile.

    tile_{m,n,k}: rows, columns and depth of a workgroup's tile (elements).
    Raises KernelError on construction when a field is invalid on every architecture. tile_oracle.arch checks
    the limits of a single architecture.
    """

    words: ClassVar[Mapping[str, tuple[str | int, ...]]]
    """The known values of fields, besides those of all tiled kernels."""

    tile_m: int
    tile_n: int
    tile_k: int
    warp_tile_m: int
    warp_tile_n: int
    warp_tile_k: int
    pipeline: str
    scheduler: str
    epilogue: str
    pad_m: bool
    pad_n: bool
    pad_k: bool

    @property
    def double_smem_buffer(self) -> bool | None:
        """Whether tiles are double-buffered in LDS; None: the pipeline decides."""
        return None

    if TYPE_CHECKING:

        @property
        def waves(self) -> tuple[int, int, int]:
            """Waves along each axis of the tile."""

    def __post_init__(self) -> None:
        for name, known in (*self.words.items(), ("scheduler", SCHEDULERS), ("epilogue", EPILOGUES)):
            self._require(name, known)
        if not isinstance(self.pipeline, str) or not PIPELINE_NAME.fullmatch(self.pipeline):
            raise KernelError(
                f"pipeline {shortened(self.pipeline)} is not mem, comp_async, comp_tdm, comp_tdm_vN, "
                "compvN, basic_vN, basic_async_vN or preshufflevN"
            )
        flags, numbers = self._flags_and_numbers()
        for name in flags:
            if type(value := getattr(self, name)) is not bool:
                raise KernelError(f"{name} = {shortened(value)} is not True or False")
        for name in numbers:
            if type(value := getattr(self, name)) is not int or not 1 <= value <= MAX_NUMBER:
                raise KernelError(f"{name} = {shortened(value)} is not an integer from 1 to 2^20")

    @classmethod
    @cache
    def _flags_and_numbers(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the names of the fields of bool and of int."""
        flags, numbers = (tuple(f.name for f in fields(cls) if f.type == kind) for kind in ("bool", "int"))
        return flags, numbers

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and depth of a workgroup's tile (elements)."""
        return (self.tile_m, self.tile_n, self.tile_k)

    @property
    def warp_tile(self) -> tuple[int, int, int]:
        """The tile of one matrix instruction sequence of a wave (on cpu: the register micro-tile)."""
        return (self.warp_tile_m, self.warp_tile_n, self.warp_tile_k)

    @property
    def paddings(self) -> tuple[bool, bool, bool]:
        """Whether partial tiles along each axis are handled."""
        return (self.pad_m, self.pad_n, self.pad_k)


def triple(values: tuple[int, int, int]) -> str:
    """64x128x64."""
    return "x".join(map(str, values))


def triple_of(text: str) -> tuple[int, int, int]:
    """Returns the inverse of `triple`."""
    m, n, k = text.split("x")
    return int(m), int(n), int(k)
