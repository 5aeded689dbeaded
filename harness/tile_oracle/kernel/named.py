"""Kernels of a source that has its own configurations: a function's name and what it was configured with.

Such kernels have none of the fields of an operation's family. Their name holds everything:

    gemm_bf16_rcr_triton.matmul.BLOCK_K=64.BLOCK_M=128.num_warps=8
    <kind>_<source>.<function>.<name>=<value>...

with the values sorted by name. In records the family's kernel columns of such a row are null, but for a tile
and pipeline that it states under the family's names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FAMILY
from tile_oracle.operation import Kind, operation_named, operation_names
from tile_oracle.operation.flat import shortened
from tile_oracle.problem import Problem

Value = int | bool | str
"""A configured value. A text is a word of letters, digits and underscores that is not a number's."""

MAX_NAME = 400
"""Most characters of a full name."""

_TILE = ("tile_m", "tile_n", "tile_k", "pipeline")
_SOURCE = r"[a-z][a-z0-9]{0,31}"
_WORD = r"[A-Za-z_][A-Za-z0-9_]{0,99}"
_FUNCTION = r"[A-Za-z_][A-Za-z0-9_]{0,249}"
_VALUE = r"[A-Za-z0-9_]{1,60}"
SHORT_NAMES = rf"{_SOURCE}\.{_FUNCTION}(?:\.{_WORD}={_VALUE})*"
"""Pattern of the short names."""
_NAME = re.compile(
    rf"(?P<prefix>[a-z0-9_]+_)(?P<short>(?P<source>{_SOURCE})\.(?P<function>{_FUNCTION})"
    rf"(?P<values>(?:\.{_WORD}={_VALUE})*))"
)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class NamedKernel:
    """One kernel of a source: its kind of problem, the source's name, a function, its configuration.

    Raises KernelError on construction for what a name cannot hold. Values are sorted by their names.
    """

    kind: Kind
    source: str
    function: str
    values: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(sorted(self.values)))
        for what, text, pattern in (("source", self.source, _SOURCE), ("function", self.function, _FUNCTION)):
            if not re.fullmatch(pattern, text):
                raise KernelError(
                    f"{what} {shortened(text)} is not a name of letters, digits and underscores"
                )
        for name, value in self.values:
            if not re.fullmatch(_WORD, name):
                raise KernelError(f"{shortened(name)} is not a name of letters, digits and underscores")
            text = str(value)
            if (
                not re.fullmatch(_VALUE, text)
                or value_of(text) != value
                or type(value_of(text)) is not type(value)
            ):
                raise KernelError(
                    f"{name} = {shortened(value)} cannot be part of a kernel's name: use an integer from 0, "
                    "True, False or a word"
                )
        if len({name for name, _ in self.values}) != len(self.values):
            raise KernelError(f"{self.function} is configured twice with one name")
        if len(self.name) > MAX_NAME:
            raise KernelError(f"{shortened(self.name)} is longer than {MAX_NAME} characters")

    @property
    def op(self) -> str:
        """The operation's name."""
        return self.kind.op

    @property
    def dtype(self) -> str:
        return self.kind.dtype

    def matches(self, problem: Problem) -> bool:
        """Returns whether the kernel is for the problem's kind."""
        return self.kind == problem.kind

    @cached_property
    def configuration(self) -> dict[str, Value]:
        """Name -> value."""
        return dict(self.values)

    @cached_property
    def name(self) -> str:
        """The full name, from which every field can be read back (`parse_named_kernel`)."""
        return operation_named(self.op).kernel_prefix(self.kind) + self.short_name

    @cached_property
    def short_name(self) -> str:
        """The name without the fields that a matching problem has."""
        return ".".join((self.source, self.function, *(f"{name}={value}" for name, value in self.values)))

    @cached_property
    def states_tile(self) -> bool:
        """Whether its configuration has the tile and pipeline of its operation's family, by their names."""
        return self.configuration.keys() >= set(_TILE)

    def as_row(self) -> dict[str, Any]:
        """Returns the columns of records that such a kernel has: those that it shares with its problem, and
        tile and pipeline if it states them."""
        own = _TILE if self.states_tile else ()
        return {**dict(self.kind.fields), **{name: self.configuration[name] for name in own}}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> NamedKernel:
        """Returns the kernel of a row, from its column `kernel`. Raises KernelError."""
        return parse_named_kernel(row.get("kernel", ""))


def lacks_fields(kernel: object) -> bool:
    """Returns whether models that read the fields of a family's kernels know nothing of this one."""
    return isinstance(kernel, NamedKernel) and not kernel.states_tile


def source_of(name: object) -> str:
    """Returns the source in a full name; FAMILY for all but a NamedKernel's, since no other name has a
    dot."""
    head, dot, _ = name.partition(".") if isinstance(name, str) else ("", "", "")
    return head.rpartition("_")[2] if dot else FAMILY


@lru_cache(maxsize=65536)
def parse_named_kernel(name: str) -> NamedKernel:
    """Returns the kernel of a full name. Raises KernelError."""
    match = _NAME.fullmatch(name) if isinstance(name, str) and len(name) <= MAX_NAME else None
    kind = None if match is None else _kinds().get(match["prefix"])
    if match is None or kind is None:
        raise KernelError(
            f"{shortened(name)} is not the name of a source's kernel; one looks like "
            "gemm_bf16_rcr_triton.matmul.BLOCK_M=128.num_warps=8"
        )
    pairs = (token.split("=") for token in match["values"].split(".")[1:])
    kernel = NamedKernel(
        kind, match["source"], match["function"], tuple((key, value_of(text)) for key, text in pairs)
    )
    if kernel.name != name:
        raise KernelError(
            f"{shortened(name)} is not written as kernel names are: {shortened(kernel.name)} is"
        )
    return kernel


def value_of(text: str) -> Value:
    """Returns the value that a text in a name stands for."""
    if _NUMBER.fullmatch(text):
        return int(text)
    return {"True": True, "False": False}.get(text, text)


@lru_cache(maxsize=1)
def _kinds() -> dict[str, Kind]:
    """Start of a full name -> kind, for all kinds of all operations."""
    known = (operation_named(name) for name in operation_names())
    return {one.kernel_prefix(kind): kind for one in known for kind in one.kinds({})}


_OTHERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(words), what)
    for words, what in (
        (r"direct_(?:tile_)?conv", "a direct convolution, not an implicit GEMM"),
        (r"wavelet", "a GEMM with waves that only load (wavelet)"),
        (r"depthwise|[0-9]+(?:\s*,\s*[0-9]+){11}", "a depthwise convolution of images in NGCHW"),
        (r"stream_?k", "stream-K, which shares tiles among workgroups"),
        (r"quant|block_?scale|gemm_mx|mx_gemm", "a GEMM with scales of rows or blocks"),
        (r"gemm_batched|batched_(?:gemm|contraction)|_batched_", "a batched GEMM"),
        (r"gemm_grouped|grouped_gemm", "a grouped GEMM"),
        (r"_multi_|_multiple_|_bias_|_scale_", "one with further operands, of unstated number and use"),
        (r"_multid_", "one with an epilogue"),
        (r"preshuffle|flatmm", "a GEMM whose B is shuffled beforehand"),
        (r"_vec[0-9]+_[0-9]+_[0-9]+\b", "a GEMM of fixed vector widths, which kernels here do not have"),
    )
)
"""What in a name says it, and what such a kernel is."""


def other_kernel(name: str) -> str:
    """Returns what a kernel of this name is if it is none of those here; "" if the name does not say so."""
    lower = name.lower()
    return next((what for pattern, what in _OTHERS if pattern.search(lower)), "")
