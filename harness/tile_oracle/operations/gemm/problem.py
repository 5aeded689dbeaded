"""GEMM problems: C = A B, one matrix product each.

A is M x K, B is K x N, C is M x N. `layout` gives the memory order of the three: r for row-major, c for
column-major. Shapes in memory, outermost extent first:

    A   r (M, K)   c (K, M)
    B   r (K, N)   c (N, K)
    C   r (M, N)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from tile_oracle.errors import ProblemError
from tile_oracle.problem.fields import FlatProblem

GEMM_DTYPES = ("bf16", "fp16", "fp8", "fp32")
"""Data types of A and B."""

GEMM_LAYOUTS = ("rcr", "rrr", "crr", "ccr")
"""Memory orders of A, B, C."""

RESULT_DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp16", "fp32": "fp32"}
"""Data type of A and B -> data type of C: a product of fp8 matrices is written as fp16."""


def operands_in_memory(layout: str, m: int, n: int, k: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the shapes of A and B in memory, outermost extent first."""
    return (m, k) if layout[0] == "r" else (k, m), (k, n) if layout[1] == "r" else (n, k)


def contiguous_extents(layout: str) -> tuple[str, ...]:
    """Returns the names of the extents of the contiguous axes of A, B and C."""
    axes = ("K" if layout[0] == "r" else "M", "N" if layout[1] == "r" else "K", "N")
    return tuple(dict.fromkeys(axes))


@dataclass(frozen=True)
class GemmProblem(FlatProblem):
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
    id_format: ClassVar[str] = "{dtype}-{layout}-m{M}-n{N}-k{K}[-s{split_k}]"
    example_id: ClassVar[str] = "gemm-bf16-rcr-m1-n4096-k4096"

    def __post_init__(self) -> None:
        self._require("dtype", GEMM_DTYPES)
        self._require("layout", GEMM_LAYOUTS)
        self._require_integers(("M", "N", "K", "split_k"))
        if self.split_k > self.K:
            raise ProblemError(f"split_k = {self.split_k} is more than K = {self.K}")
        self._require_size()

    @property
    def title(self) -> str:
        """`1 x 4,096 x 4,096, rcr`: M, N, K and the layout."""
        split = f", split_k {self.split_k}" if self.split_k != 1 else ""
        return f"{self.M:,} x {self.N:,} x {self.K:,}, {self.layout}{split}"

    @property
    def operand_shapes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Shapes of A, B and C in memory, outermost extent first."""
        return (*operands_in_memory(self.layout, *self.gemm_shape), (self.M, self.N))

    @property
    def gemm_shape(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        return (self.M, self.N, self.K)

    @property
    def result_dtype(self) -> str:
        """Data type of C."""
        return RESULT_DTYPES[self.dtype]

    @cached_property
    def flops(self) -> int:
        """2·M·N·K."""
        return 2 * self.M * self.N * self.K
