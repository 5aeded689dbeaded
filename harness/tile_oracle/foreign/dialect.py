"""How foreign files name the columns, dimensions and kernels of each operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from tile_oracle.kernel import Kernel
from tile_oracle.operation import operation_named
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Kind, Problem

Claim = Callable[[str, Problem], bool]
"""Tells whether the text that a row states holds for the row's problem."""

_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "kernel": "kernel", "kernel_name": "kernel", "name": "kernel",
        "latency_ms": "latency_ms", "latency": "latency_ms", "latency(ms)": "latency_ms",
        "time_ms": "latency_ms", "avg_time_ms": "latency_ms",
        "tflops": "tflops", "tflops(tflops)": "tflops", "measured_tflops": "tflops", "non_zero": "non_zero",
    }
)  # fmt: skip
"""Spellings of the columns that published files use, in lower case."""


def _as_named(kernel: Kernel) -> Kernel:
    return kernel


def _padded_mem(kernel: GemmKernel) -> Kernel:
    """CK Tile's GEMMs with the pipeline mem pad all three axes, but benchmark programs name them without."""
    return replace(kernel, pad_m=True, pad_n=True, pad_k=True) if kernel.pipeline == "mem" else kernel


@dataclass(frozen=True)
class Dialect:
    """One operation's names in foreign files. `shape`: the dimensions that begin a new problem when a log
    mentions them. `kernel_word`: pattern of a kernel's name in running text. `any_case`: whether logs may
    write dimensions in lower case. `claims`: columns that repeat what the kernel's name and the dimensions
    state. `meant`: the kernel that was measured under a kernel's name."""

    op: str
    defaults: Mapping[str, int]
    shape: tuple[str, ...]
    kernel_word: re.Pattern[str]
    any_case: bool
    claims: Mapping[str, Claim] = field(default_factory=dict)
    meant: Callable[[Any], Kernel] = _as_named

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The numbers of a problem, without what a kernel's name states (dtype, direction, ...)."""
        return operation_named(self.op).free_fields

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name in self.dimensions if name not in self.defaults)

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """Spelling in lower case -> column."""
        names = (*self.dimensions, *self.claims)
        return {name.lower(): name for name in names} | dict(_KEYS)

    @cached_property
    def dimension(self) -> re.Pattern[str]:
        """A dimension and its value in a log: M = 16, or M: 16."""
        names = "|".join(sorted(map(re.escape, self.dimensions), key=len, reverse=True))
        return re.compile(rf"\b({names})\s*[=:]\s*(\d+)", re.IGNORECASE if self.any_case else 0)

    def spelled(self, name: str) -> str:
        """Our spelling of a dimension that was found."""
        return self.keys[name.lower()] if self.any_case else name

    def holds(self, claim: str, value: str, problem: Problem) -> bool:
        """Whether what a row states in the column `claim` holds for its problem."""
        return self.claims[claim](value.strip(), problem)

    def kernel(self, name: str) -> Kernel:
        """The kernel of a name. Raises KernelError."""
        return operation_named(self.op).parse_kernel(name)

    def problem(self, kind: Kind, dimensions: Mapping[str, int]) -> Problem:
        """The problem of a kernel's kind with these dimensions. Raises ProblemError."""
        return operation_named(kind.op).problem.from_row({**kind.words, **dimensions})


CONVOLUTIONS = Dialect(
    GroupedConvProblem.op,
    MappingProxyType(
        {
            "G": 1, "stride_h": 1, "stride_w": 1, "pad_h": 0, "pad_w": 0, "dilation_h": 1, "dilation_w": 1,
            "Di": 1, "Z": 1, "stride_d": 1, "pad_d": 0, "dilation_d": 1,
        }
    ),
    ("N", "C", "K"),
    re.compile(r"\bgrouped_conv_[a-z0-9_]+"),
    any_case=False,
)  # fmt: skip

_LAYOUT_LETTERS = {"rowmajor": "r", "columnmajor": "c", "colmajor": "c", "r": "r", "c": "c"}


def _dtype(place: int) -> Claim:
    def holds(value: str, problem: Problem) -> bool:
        wanted = problem.result_dtype if place == 2 else problem.dtype
        return value.lower() == wanted

    return holds


def _layout(place: int) -> Claim:
    def holds(value: str, problem: Problem) -> bool:
        letter = _LAYOUT_LETTERS.get(value.lower().replace("_", ""))
        layout = str(problem.kind.words.get("layout", ""))
        return letter is not None and letter == layout[place : place + 1]

    return holds


def _stride(place: int) -> Claim:
    """Elements from one row (or column) in memory to the next; 0 means dense."""

    def holds(value: str, problem: Problem) -> bool:
        return value.removesuffix(".0") in ("", "0", str(problem.operand_shapes[place][-1]))

    return holds


_GEMM_CLAIMS: Mapping[str, Claim] = MappingProxyType(
    {f"dtype_{operand}": _dtype(place) for place, operand in enumerate("abc")}
    | {f"layout_{operand}": _layout(place) for place, operand in enumerate("abc")}
    | {f"stride_{operand}": _stride(place) for place, operand in enumerate("abc")}
    | {"layout": lambda value, problem: value.lower() == getattr(problem, "layout", "")}
    | {"dtype": lambda value, problem: value.lower() == problem.dtype}
    | {"structured_sparsity": lambda value, problem: value.lower() in ("false", "0")}
)

GEMMS = Dialect(
    GemmProblem.op,
    MappingProxyType({"split_k": 1}),
    ("M", "N", "K"),
    re.compile(r"\bgemm_[A-Za-z0-9_]+"),
    any_case=True,
    claims=_GEMM_CLAIMS,
    meant=_padded_mem,
)


def dialect_of_text(text: str) -> Dialect:
    """The dialect of the kernels that a file names; that of convolutions if it names none."""
    found = GEMMS.kernel_word.search(text)
    return GEMMS if found and not CONVOLUTIONS.kernel_word.search(text) else CONVOLUTIONS


def dialect_of_header(names: Sequence[str]) -> Dialect:
    """The dialect of a table's columns."""
    lower = {name.strip().lower() for name in names}
    return GEMMS if "m" in lower and not {"c", "hi"} & lower else CONVOLUTIONS
