"""What a declaration of a Triton kernel sees of attention."""

from __future__ import annotations

from types import MappingProxyType

from tile_oracle.operation import Kind
from tile_oracle.operations.attention.problem import HEAD_DIMS
from tile_oracle.triton.views import FIRST, OUT, SECOND, THIRD, Pointer, ProblemView


class View(ProblemView):
    """Attention. The numbers are the problem's fields; head_dim, causal and scale = 1 / sqrt(head_dim) are
    known. q, k, v, out: arrays (batch, heads, seq, head_dim), K and V with kv_heads heads."""

    op = "attention"
    numbers = ("batch", "heads", "kv_heads", "seq_q", "seq_kv")
    kinds = MappingProxyType({"dtype": ("bf16", "fp16"), "head_dim": HEAD_DIMS, "causal": (0, 1)})
    arrays = ("q", "k", "v", "out")

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.head_dim, self.causal = int(kind.words["head_dim"]), bool(kind.words["causal"])
        self.scale = float(self.head_dim) ** -0.5
        queries = self.batch * self.heads * self.seq_q * self.head_dim
        keys = self.batch * self.kv_heads * self.seq_kv * self.head_dim
        self.q, self.out = Pointer(FIRST, self.dtype, queries), Pointer(OUT, self.dtype, queries)
        self.k, self.v = Pointer(SECOND, self.dtype, keys), Pointer(THIRD, self.dtype, keys)

    def usual_arguments(self) -> dict[str, object]:
        """q_ptr, k_ptr, v_ptr, out_ptr, the numbers, scale, and the constants HEAD_DIM and CAUSAL."""
        known = {"scale": self.scale, "HEAD_DIM": self.head_dim, "CAUSAL": self.causal}
        return super().usual_arguments() | known

    def contiguous(self) -> tuple[str, ...]:
        """Returns the lengths: the contiguous axis, head_dim, is always a multiple of 16."""
        return ("seq_q", "seq_kv")
