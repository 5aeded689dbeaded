"""What a declaration of a Triton kernel sees of a scaled product."""

from __future__ import annotations

from types import MappingProxyType

from tile_oracle.operation import Kind
from tile_oracle.operations.scaled_gemm.problem import BLOCK, MX_BLOCK, OPERAND_DTYPES
from tile_oracle.triton.expression import Number, cdiv
from tile_oracle.triton.views import FIRST, FOURTH, OUT, SECOND, THIRD, Pointer, ProblemView


class View(ProblemView):
    """C = (A scale_a) (B scale_b)^T. M, N, K: extents. scale: tensor, row, block or mx.

    a (M, K), b (N, K), c (M, N): arrays by rows, e2m1 in pairs as uint8. scale_a, scale_b: fp32 arrays, for
    blocks of the shapes (K / 128, M) and (N / 128, K / 128); for mx e8m0 as uint8, (M, K / 32), (N, K / 32).
    """

    op = "scaled_gemm"
    numbers = ("M", "N", "K")
    kinds = MappingProxyType({"dtype": ("fp8_e4m3", "fp8_e5m2"), "scale": ("tensor", "row", "block")})
    arrays = ("a", "b", "scale_a", "scale_b", "c")

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.result_dtype = "bf16"
        self.scale = str(kind.words["scale"])
        of_a, of_b = OPERAND_DTYPES[self.dtype]
        depth = cdiv(self.K, BLOCK)
        scales: dict[str, tuple[Number, Number]] = {
            "tensor": (1, 1),
            "row": (self.M, self.N),
            "block": (self.M * depth, cdiv(self.N, BLOCK) * depth),
            "mx": (self.M * (self.K // MX_BLOCK), self.N * (self.K // MX_BLOCK)),
        }
        row = self.K // 2 if self.dtype == "fp4_e2m1" else self.K
        self.a = Pointer(FIRST, of_a, self.M * row)
        self.b = Pointer(SECOND, of_b, self.N * row)
        self.scale_a, self.scale_b = (
            Pointer(role, "e8m0" if self.scale == "mx" else "fp32", count)
            for role, count in zip((THIRD, FOURTH), scales[self.scale], strict=True)
        )
        self.c = Pointer(OUT, self.result_dtype, self.M * self.N)

    def usual_arguments(self) -> dict[str, object]:
        """a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K, and the constant SCALE."""
        return super().usual_arguments() | {"SCALE": self.scale}

    def contiguous(self) -> tuple[str, ...]:
        """Returns the extents of the contiguous axes."""
        return ("K", "N")
