"""GEMM problems: C = A B, one matrix product each.

A is M x K, B is K x N, C is M x N. `layout` gives the memory order of the three: r for row-major, c for
column-major. Shapes in memory, outermost extent first:

    A   r (M, K)   c (K, M)
    B   r (K, N)   c (N, K)
    C   r (M, N)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from tile_oracle.errors import ProblemError
from tile_oracle.operation.kind import Kind
from tile_oracle.problem.fields import MAX_BYTES, MAX_EXTENT, values_of_row

GEMM_DTYPES = ("bf16", "fp16", "fp8", "fp32")
"""Data types of A and B."""

GEMM_LAYOUTS = ("rcr", "rrr", "crr", "ccr")
"""Memory orders of A, B, C."""

RESULT_DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp16", "fp32": "fp32"}
"""Data type of A and B -> data type of C: a product of fp8 matrices is written as fp16."""

_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}


@dataclass(frozen=True)
class GemmProblem:
    """One matrix product. `split_k`: number of parts of the depth that are summed separately and then added.

    Raises ProblemError on construction when the dimensions are invalid.
    """

    dtype: str
    layout: str
    M: int
    N: int
    K: int
    split_k: int = 1

    op: ClassVar[str] = "gemm"

    def __post_init__(self) -> None:
        for name, words in (("dtype", GEMM_DTYPES), ("layout", GEMM_LAYOUTS)):
            if getattr(self, name) not in words:
                raise ProblemError(f"{name} {getattr(self, name)!r} is not one of {', '.join(words)}")
        for name in ("M", "N", "K", "split_k"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= MAX_EXTENT:
                raise ProblemError(f"{name} = {value!r} is not an integer from 1 to 2^31 - 1")
        if self.split_k > self.K:
            raise ProblemError(f"split_k = {self.split_k} is more than K = {self.K}")
        if self.bytes > MAX_BYTES or self.flops > MAX_BYTES:
            raise ProblemError("the matrices hold more than 2^62 bytes: no machine runs this problem")

    # ---- identity ---------------------------------------------------------------------------

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The fields that identify the problem. Join by this, never by an index."""
        return (self.op, *(getattr(self, name) for name in GEMM_PROBLEM_FIELDS))

    @cached_property
    def family(self) -> tuple[Any, ...]:
        """The key without M: one layer's weights, whatever the number of tokens."""
        return (self.op, *(getattr(self, name) for name in GEMM_PROBLEM_FIELDS if name != "M"))

    @cached_property
    def kind(self) -> Kind:
        """The fields that problem and kernel must share: operation, dtype, layout."""
        return Kind.of(self.op, dtype=self.dtype, layout=self.layout)

    @cached_property
    def id(self) -> str:
        """Readable and reversible (`from_id`): gemm-bf16-rcr-m1-n4096-k4096, with -s4 for a split_k of 4."""
        split = f"-s{self.split_k}" if self.split_k != 1 else ""
        return f"{self.op}-{self.dtype}-{self.layout}-m{self.M}-n{self.N}-k{self.K}{split}"

    @classmethod
    def from_id(cls, text: str) -> GemmProblem:
        """The inverse of `id`. Raises ProblemError for any text that `id` would not return."""
        match = _ID.fullmatch(text)
        if match is None:
            raise ProblemError(
                f"{text!r} is not a GEMM problem id; one looks like gemm-bf16-rcr-m1-n4096-k4096"
            )
        m, n, k, split = (int(match[name] or 1) for name in ("m", "n", "k", "s"))
        problem = cls(match["dtype"], match["layout"], m, n, k, split)
        if problem.id != text:
            raise ProblemError(f"{text!r} is not a problem id: did you mean {problem.id!r}?")
        return problem

    def as_row(self) -> dict[str, Any]:
        """All fields as a flat mapping, in the order of GEMM_PROBLEM_FIELDS."""
        return {name: getattr(self, name) for name in GEMM_PROBLEM_FIELDS}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> GemmProblem:
        """The inverse of `as_row`; other columns are ignored, integers of any type are accepted.

        Raises ProblemError when a field without a default is missing or a number is not an integer.
        """
        return cls(**values_of_row(cls, row))

    # ---- shapes -----------------------------------------------------------------------------

    @property
    def operand_shapes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Shapes of A, B and C in memory, outermost extent first."""
        a = (self.M, self.K) if self.layout[0] == "r" else (self.K, self.M)
        b = (self.K, self.N) if self.layout[1] == "r" else (self.N, self.K)
        return (a, b, (self.M, self.N))

    @property
    def gemm_shape(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        return (self.M, self.N, self.K)

    @property
    def result_dtype(self) -> str:
        """Data type of C."""
        return RESULT_DTYPES[self.dtype]

    # ---- work -------------------------------------------------------------------------------

    @cached_property
    def flops(self) -> int:
        """2·M·N·K."""
        return 2 * self.M * self.N * self.K

    @cached_property
    def bytes(self) -> int:
        """Bytes of A, B and C, each moved once."""
        a, b, c = (math.prod(shape) for shape in self.operand_shapes)
        return _BYTES[self.dtype] * (a + b) + _BYTES[self.result_dtype] * c

    def tflops(self, latency_ms: float) -> float:
        """Throughput in TFLOPS (1e12 floating-point operations a second) at a latency in milliseconds."""
        return self.flops / (latency_ms * 1e9)


GEMM_PROBLEM_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(GemmProblem))
"""The columns of a GEMM problem, in the order of the key."""

_N = r"[0-9]{1,10}"
_ID = re.compile(
    rf"gemm-(?P<dtype>[a-z0-9]+)-(?P<layout>[a-z]{{3}})-m(?P<m>{_N})-n(?P<n>{_N})-k(?P<k>{_N})(?:-s(?P<s>{_N}))?"
)
