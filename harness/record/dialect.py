"""How foreign files name the columns, dimensions and kernels of each operation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from harness.kernel import Kernel, parse_gemm_name, parse_grouped_conv_name
from harness.problem import GemmProblem, GroupedConvProblem, Kind, Problem
from harness.record.schema import problem_columns

_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "kernel": "kernel", "kernel_name": "kernel", "name": "kernel",
        "latency_ms": "latency_ms", "latency": "latency_ms", "latency(ms)": "latency_ms",
        "time_ms": "latency_ms", "avg_time_ms": "latency_ms",
        "tflops": "tflops", "tflops(tflops)": "tflops", "non_zero": "non_zero",
    }
)  # fmt: skip
"""Spellings of the columns that published files use, in lower case."""


@dataclass(frozen=True)
class Dialect:
    """One operation's words. `shape`: the dimensions whose mention in a log begins a new problem;
    `kernel_word`: what a kernel's name looks like in running text; `any_case`: whether logs may write
    dimensions in lower case."""

    op: str
    defaults: Mapping[str, int]
    shape: tuple[str, ...]
    kernel_word: re.Pattern[str]
    any_case: bool

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The numbers of a problem; what a kernel's name says (dtype, direction, ...) is not among them."""
        words = ("direction", "dtype", "ndim", "layout")
        return tuple(name for name in problem_columns(self.op) if name not in words)

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name in self.dimensions if name not in self.defaults)

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """Spelling in lower case -> column."""
        return {name.lower(): name for name in self.dimensions} | dict(_KEYS)

    @cached_property
    def dimension(self) -> re.Pattern[str]:
        """A dimension and its value in a log: M = 16, or M: 16."""
        names = "|".join(sorted(map(re.escape, self.dimensions), key=len, reverse=True))
        return re.compile(rf"\b({names})\s*[=:]\s*(\d+)", re.IGNORECASE if self.any_case else 0)

    def spelled(self, name: str) -> str:
        """A dimension as it was found, in our own spelling."""
        return self.keys[name.lower()] if self.any_case else name

    def kernel(self, name: str) -> Kernel:
        """The kernel of a name. Raises KernelError."""
        return parse_gemm_name(name) if self.op == GemmProblem.op else parse_grouped_conv_name(name)

    def problem(self, kind: Kind, dimensions: Mapping[str, int]) -> Problem:
        """The problem of a kernel's kind with these dimensions. Raises ProblemError."""
        first, dtype, last = kind
        if isinstance(last, int):
            return GroupedConvProblem(first, dtype, last, **dimensions)
        return GemmProblem(dtype, last, **dimensions)


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

GEMMS = Dialect(
    GemmProblem.op,
    MappingProxyType({"split_k": 1}),
    ("M", "N", "K"),
    re.compile(r"\bgemm_[A-Za-z0-9_]+"),
    any_case=True,
)


def dialect_of_text(text: str) -> Dialect:
    """The operation that a file's kernels are of; convolutions where it names none."""
    found = GEMMS.kernel_word.search(text)
    return GEMMS if found and not CONVOLUTIONS.kernel_word.search(text) else CONVOLUTIONS


def dialect_of_header(names: Sequence[str]) -> Dialect:
    """The operation that a table's columns are of."""
    lower = {name.strip().lower() for name in names}
    return GEMMS if "m" in lower and not {"c", "hi"} & lower else CONVOLUTIONS
