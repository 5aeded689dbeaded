"""Products of fp8 and fp4 matrices with scales: C = (A scale_a) (B scale_b)^T, written as bf16."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tile_oracle.errors import ProblemError
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.problem.fields import ELEMENT_BYTES, FlatProblem

OPERAND_DTYPES: Mapping[str, tuple[str, str]] = {
    "fp8_e4m3": ("fp8_e4m3", "fp8_e4m3"),
    "fp8_e5m2": ("fp8_e5m2", "fp8_e4m3"),
    "fp4_e2m1": ("fp4_e2m1", "fp4_e2m1"),
}
"""dtype -> OCP formats of A and B. The products that training has with e5m2 have a gradient as A and weights
or activations in e4m3 as B."""
SCALES = ("tensor", "row", "block", "mx")
BLOCK, MX_BLOCK = 128, 32
"""Elements of a block along each of its axes: 1 x 128 of A, 128 x 128 of B; of MX 1 x 32 of both."""
MOST_K = 65_536
"""The deepest product whose sums fp32 holds exactly in each pattern of the check."""


def is_kind(words: Mapping[str, Any]) -> bool:
    """Returns whether a data type has such scales."""
    return bool(words["dtype"] != "fp4_e2m1" or words["scale"] == "mx")


@dataclass(frozen=True)
class ScaledGemmProblem(FlatProblem):
    """One product. Raises ProblemError for values out of range.

    A is M x K and B is N x K, both by rows; C is M x N by rows. scale, of fp32 numbers: `tensor`, one for A
    and one for B; `row`, one for each row of A and of B; `block`, one for each 1 x 128 of A, as an array
    (K / 128, M), and for each 128 x 128 of B, as (N / 128, K / 128). `mx`: OCP Microscaling (v1.0), one e8m0
    for each 1 x 32 of A, as (M, K / 32), and of B, as (N, K / 32). e2m1 lie in pairs along K, and have mx
    alone.
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
        if not is_kind(self.as_row()):
            raise ProblemError(f"e2m1 have scales of mx, not of {self.scale}")
        if self.scale == "mx" and self.K % MX_BLOCK:
            raise ProblemError(
                f"K = {self.K} is no multiple of {MX_BLOCK}, the elements that share an MX scale"
            )
        self._require_size()

    @property
    def title(self) -> str:
        """`16 x 4,096 x 7,168, scales by block`: M, N, K and what a scale is of."""
        return f"{self.M:,} x {self.N:,} x {self.K:,}, scales by {self.scale}"

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """A, B, the scales of both, and the result; of e2m1 the pairs."""
        depth = -(-self.K // BLOCK)
        of_a, of_b = {
            "tensor": ((1,), (1,)),
            "row": ((self.M,), (self.N,)),
            "block": ((depth, self.M), (-(-self.N // BLOCK), depth)),
            "mx": ((self.M, self.K // MX_BLOCK), (self.N, self.K // MX_BLOCK)),
        }[self.scale]
        row = self.K // 2 if self.dtype == "fp4_e2m1" else self.K
        return ((self.M, row), (self.N, row), of_a, of_b, (self.M, self.N))

    @property
    def gemm_shape(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        return (self.M, self.N, self.K)

    @property
    def operand_dtypes(self) -> tuple[str, str]:
        """Data types of A and B."""
        return OPERAND_DTYPES[self.dtype]

    @property
    def scale_dtype(self) -> str:
        """Data type of the scales."""
        return "e8m0" if self.scale == "mx" else "fp32"

    @property
    def depth_of_scale(self) -> int:
        """Along K, how many elements share a scale."""
        return {"block": BLOCK, "mx": MX_BLOCK}.get(self.scale, self.K)

    @property
    def result_dtype(self) -> str:
        """Data type of C."""
        return "bf16"

    @cached_property
    def bytes(self) -> int:
        """Bytes of operands, scales and result, each moved once."""
        a, b, *scales, result = map(math.prod, self.operand_shapes)
        return a + b + ELEMENT_BYTES[self.scale_dtype] * sum(scales) + 2 * result

    @cached_property
    def flops(self) -> int:
        """2 M N K."""
        return 2 * self.M * self.N * self.K


# ---- The project's own scaled products for the target cpu ----------------------------------------


@dataclass(frozen=True)
class ScaledGemmKernel(SizedKernel):
    """One kernel. columns: of C, how many it takes at a time."""

    dtype: str
    scale: str
    columns: int

    op = "scaled_gemm"
    sizes: ClassVar = {"columns": (1, 4, 16)}
