"""What a declaration of a Triton kernel sees of a matrix product."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import MappingProxyType

from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import contiguous_extents
from tile_oracle.triton.expression import Number, Tree
from tile_oracle.triton.views import FIRST, OUT, SECOND, Pointer, ProblemView


class GemmView(ProblemView):
    """C = A B. M, N, K: extents. split_k: the problem's own. a, b, c: the arrays.

    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn: elements from one row (m, n) or one
    step of the depth (k) to the next; 1 along the contiguous axis.
    """

    op = "gemm"
    numbers = ("M", "N", "K", "split_k")
    kinds = MappingProxyType({"dtype": ("bf16", "fp16"), "layout": ("rcr", "rrr", "crr", "ccr")})

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.layout = str(kind.words["layout"])
        self.a = Pointer(FIRST, self.dtype, self.M * self.K)
        self.b = Pointer(SECOND, self.dtype, self.K * self.N)
        self.c = Pointer(OUT, self.result_dtype, self.M * self.N)
        a_by_row, b_by_row = self.layout[0] == "r", self.layout[1] == "r"
        self.stride_am: Number = self.K if a_by_row else 1
        self.stride_ak: Number = 1 if a_by_row else self.M
        self.stride_bk: Number = self.N if b_by_row else 1
        self.stride_bn: Number = 1 if b_by_row else self.K
        self.stride_cm: Number = self.N
        self.stride_cn: Number = 1

    def usual_arguments(self) -> dict[str, object]:
        """Returns the argument names of Triton's tutorials."""
        names = ("M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")
        return {"a_ptr": self.a, "b_ptr": self.b, "c_ptr": self.c} | {
            one: getattr(self, one) for one in names
        }

    def contiguous(self) -> tuple[str, ...]:
        """Returns the extents of the contiguous axes."""
        return contiguous_extents(self.layout)

    def implied(self, used: Collection[str]) -> Iterator[tuple[Tree, str]]:
        """Yields a kernel that does not know the problem's split_k does not split the depth."""
        if "split_k" not in used:
            yield ["==", "split_k", 1], "it does not split the depth itself"
