"""Batches of products with an epilogue: C = activation(A B + bias) times or plus D."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, operands_in_memory
from tile_oracle.problem.fields import FlatProblem

# ---- What happens to a sum of products before it is written --------------------------------------

LAST = ("mul", "residual")
"""What is done with the matrix D after the activation: multiplied, added."""


@dataclass(frozen=True)
class Epilogue:
    """C = activation(A B + bias), then times or plus D.

    activation: "", gelu (torch's approximate="none", with erf), gelu_tanh (approximate="tanh") or silu.
    last: "" without D.
    """

    bias: bool
    activation: str
    last: str


def _read(name: str) -> Epilogue:
    words = name.removeprefix("none").split("_")
    activation = "_".join(one for one in words if one not in ("bias", *LAST))
    return Epilogue("bias" in words, activation, words[-1] if words[-1] in LAST else "")


EPILOGUES: Mapping[str, Epilogue] = {
    name: _read(name)
    for name in (
        *("none", "bias", "gelu_tanh", "bias_gelu", "bias_gelu_tanh"),
        *("silu_mul", "gelu_tanh_mul", "residual", "bias_residual"),
    )
}
"""Name -> its parts."""


DTYPES = ("bf16", "fp16")
MOST_K = 65_536
"""The deepest product whose sums fp32 holds exactly in each set of the check."""


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
    id_format: ClassVar[str] = "{dtype}-{layout}-{epilogue}-m{M}-n{N}-k{K}[-b{batch}]"
    example_id: ClassVar[str] = "fused_gemm-bf16-rcr-bias_gelu-m16-n4096-k1024, with -b32 for a batch of 32"

    def __post_init__(self) -> None:
        self._require("dtype", DTYPES)
        self._require("layout", GEMM_LAYOUTS)
        self._require("epilogue", EPILOGUES)
        self._require_integers(("M", "N", "batch"))
        self._require_integers(("K",), most=MOST_K)
        self._require_size()

    @property
    def parts(self) -> Epilogue:
        """The epilogue's parts."""
        return EPILOGUES[self.epilogue]

    @property
    def title(self) -> str:
        """`16 x 4,096 x 1,024, rcr, bias_gelu, batch of 32`: M, N, K, and what a plain product lacks."""
        epilogue = f", {self.epilogue}" if self.epilogue != "none" else ""
        batch = f", batch of {self.batch}" if self.batch != 1 else ""
        return f"{self.M:,} x {self.N:,} x {self.K:,}, {self.layout}{epilogue}{batch}"

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B, the bias and D, if there are any, and C in memory."""
        a, b = operands_in_memory(self.layout, *self.gemm_shape)
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


# ---- The project's own fused products for the target cpu -----------------------------------------


@dataclass(frozen=True)
class FusedGemmKernel(SizedKernel):
    """One kernel. columns: of C, how many it takes at a time."""

    dtype: str
    layout: str
    epilogue: str
    columns: int

    op = "fused_gemm"
    sizes: ClassVar = {"columns": (1, 4, 16)}
