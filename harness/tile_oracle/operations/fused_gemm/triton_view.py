"""What a declaration of a Triton kernel sees of a fused product."""

from __future__ import annotations

from types import MappingProxyType

from tile_oracle.operation import Kind
from tile_oracle.operations.fused_gemm.problem import DTYPES, EPILOGUES
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, contiguous_extents
from tile_oracle.triton.views import FIRST, OPERANDS, OUT, SECOND, Pointer, ProblemView


class View(ProblemView):
    """C = activation(A B + bias), times or plus D, `batch` times. M, N, K, batch: extents.

    a, b, c: arrays in the memory orders of `layout`, whose matrices lie one after the other. bias (batch, N)
    and d (batch, M, N): None where the epilogue has none. activation: "", gelu, gelu_tanh or silu. last: "",
    mul or residual.
    """

    op = "fused_gemm"
    numbers = ("M", "N", "K", "batch")
    kinds = MappingProxyType({"dtype": DTYPES, "layout": GEMM_LAYOUTS, "epilogue": tuple(EPILOGUES)})
    arrays = ("a", "b", "bias", "d", "c")

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.layout = str(kind.words["layout"])
        epilogue = EPILOGUES[str(kind.words["epilogue"])]
        self.activation, self.last = epilogue.activation, epilogue.last
        self.a = Pointer(FIRST, self.dtype, self.batch * self.M * self.K)
        self.b = Pointer(SECOND, self.dtype, self.batch * self.K * self.N)
        self.c = Pointer(OUT, self.result_dtype, self.batch * self.M * self.N)
        roles = iter(OPERANDS[2:])
        self.bias = Pointer(next(roles), self.dtype, self.batch * self.N) if epilogue.bias else None
        self.d = Pointer(next(roles), self.dtype, self.batch * self.M * self.N) if epilogue.last else None

    def usual_arguments(self) -> dict[str, object]:
        """a_ptr, b_ptr, bias_ptr, d_ptr, c_ptr, M, N, K, batch, and constants: A_BY_ROW, B_BY_ROW,
        ACTIVATION, LAST."""
        orders = {f"{name}_BY_ROW": one == "r" for name, one in zip("AB", self.layout, strict=False)}
        return super().usual_arguments() | orders | {"ACTIVATION": self.activation, "LAST": self.last}

    def contiguous(self) -> tuple[str, ...]:
        """Returns the extents of the contiguous axes."""
        return contiguous_extents(self.layout)
