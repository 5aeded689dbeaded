"""Batches of products with an epilogue: C = activation(A B + bias) times or plus D."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from tile_oracle.errors import ProblemError
from tile_oracle.operations.fused_gemm.epilogues import EPILOGUES, Epilogue
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS
from tile_oracle.problem.fields import FlatProblem

DTYPES = ("bf16", "fp16")
MOST_K = 65_536
"""The deepest product whose sums fp32 holds exactly in each set of the check."""
_N = "([0-9]{1,10})"
_ID = re.compile(f"fused_gemm-([a-z0-9]+)-([rc]{{3}})-([a-z_]+)-m{_N}-n{_N}-k{_N}(?:-b{_N})?")


@dataclass(frozen=True)
class FusedGemmProblem(FlatProblem):
    """`batch` products of one shape. Raises ProblemError for values out of range.

    Matrices of a batch lie one after the other, in the memory orders of `layout`, as those of a GEMM. The
    bias is a row of N values for each product of the batch, D lies as C. Sums and epilogue are in fp32; C is
    rounded once.
    """

    dtype: str
    layout: str
    epilogue: str
    M: int
    N: int
    K: int
    batch: int = 1

    op: ClassVar[str] = "fused_gemm"

    def __post_init__(self) -> None:
        self._require("dtype", DTYPES)
        self._require("layout", GEMM_LAYOUTS)
        self._require("epilogue", EPILOGUES)
        self._require_integers(("M", "N", "batch"))
        self._require_integers(("K",), most=MOST_K)
        self._require_size()

    @cached_property
    def id(self) -> str:
        """`fused_gemm-bf16-rcr-none-m128-n128-k64-b32`; without -b for one product."""
        batch = f"-b{self.batch}" if self.batch != 1 else ""
        return f"{self.op}-{self.dtype}-{self.layout}-{self.epilogue}-m{self.M}-n{self.N}-k{self.K}{batch}"

    @classmethod
    def from_id(cls, text: str) -> Self:
        """Returns the inverse of `id`. Raises ProblemError."""
        match = _ID.fullmatch(text)
        problem = None
        if match is not None:
            problem = cls(match[1], match[2], match[3], *(int(one or 1) for one in match.groups()[3:]))
        if problem is None or problem.id != text:
            raise ProblemError(
                f"{text!r} is not the id of a fused product; one looks like "
                "fused_gemm-bf16-rcr-bias_gelu-m16-n4096-k1024, with -b32 for a batch of 32"
            )
        return problem

    @property
    def parts(self) -> Epilogue:
        """The epilogue's parts."""
        return EPILOGUES[self.epilogue]

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B, the bias and D, if there are any, and C in memory."""
        a = (self.M, self.K) if self.layout[0] == "r" else (self.K, self.M)
        b = (self.K, self.N) if self.layout[1] == "r" else (self.N, self.K)
        bias = ((self.batch, self.N),) if self.parts.bias else ()
        c = (self.batch, self.M, self.N)
        return ((self.batch, *a), (self.batch, *b), *bias, *((c,) if self.parts.last else ()), c)

    @property
    def gemm_shape(self) -> tuple[int, int, int]:
        """(M, N, K) of one product."""
        return (self.M, self.N, self.K)

    @cached_property
    def flops(self) -> int:
        """2 M N K for each product."""
        return 2 * self.batch * self.M * self.N * self.K
