"""Products of fp8 matrices with scales: C = (A scale_a) (B scale_b)^T, written as bf16."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from tile_oracle.problem.fields import FlatProblem

OPERAND_DTYPES: Mapping[str, tuple[str, str]] = {
    "fp8_e4m3": ("fp8_e4m3", "fp8_e4m3"),
    "fp8_e5m2": ("fp8_e5m2", "fp8_e4m3"),
}
"""dtype -> OCP formats of A and B. The products that training has with e5m2 have a gradient as A and weights
or activations in e4m3 as B."""
SCALES = ("tensor", "row", "block")
BLOCK = 128
"""Elements of a block along each of its axes: 1 x 128 of A, 128 x 128 of B."""
MOST_K = 65_536
"""The deepest product whose sums fp32 holds exactly in each pattern of the check."""


@dataclass(frozen=True)
class ScaledGemmProblem(FlatProblem):
    """One product. Raises ProblemError for values out of range.

    A is M x K and B is N x K, both by rows; C is M x N by rows. scale, of fp32 numbers: `tensor`, one for A
    and one for B; `row`, one for each row of A and of B; `block`, one for each 1 x 128 of A, as an array
    (K / 128, M), and for each 128 x 128 of B, as (N / 128, K / 128).
    """

    dtype: str
    scale: str
    M: int
    N: int
    K: int

    op: ClassVar[str] = "scaled_gemm"
    id_format: ClassVar[str] = "{dtype}-{scale}-m{M}-n{N}-k{K}"
    example_id: ClassVar[str] = "scaled_gemm-fp8_e4m3-block-m16-n4096-k7168"

    def __post_init__(self) -> None:
        self._require("dtype", OPERAND_DTYPES)
        self._require("scale", SCALES)
        self._require_integers(("M", "N"))
        self._require_integers(("K",), most=MOST_K)
        self._require_size()

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """A, B, the scales of both, and the result."""
        depth = -(-self.K // BLOCK)
        of_a, of_b = {
            "tensor": ((1,), (1,)),
            "row": ((self.M,), (self.N,)),
            "block": ((depth, self.M), (-(-self.N // BLOCK), depth)),
        }[self.scale]
        return ((self.M, self.K), (self.N, self.K), of_a, of_b, (self.M, self.N))

    @property
    def gemm_shape(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        return (self.M, self.N, self.K)

    @property
    def operand_dtypes(self) -> tuple[str, str]:
        """Data types of A and B."""
        return OPERAND_DTYPES[self.dtype]

    @property
    def result_dtype(self) -> str:
        """Data type of C."""
        return "bf16"

    @cached_property
    def bytes(self) -> int:
        """Bytes of operands, scales and result, each moved once."""
        a, b, *scales, result = map(math.prod, self.operand_shapes)
        return a + b + 4 * sum(scales) + 2 * result

    @cached_property
    def flops(self) -> int:
        """2 M N K."""
        return 2 * self.M * self.N * self.K
