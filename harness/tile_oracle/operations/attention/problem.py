"""Attention problems: O = softmax(Q K^T / sqrt(head_dim)) V for each head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.errors import ProblemError
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.problem.fields import FlatProblem

ATTENTION_DTYPES = ("bf16", "fp16")
HEAD_DIMS = (64, 128, 256)
_MOST_ROWS = 2**24
"""Most queries, keys and slices. A row's sum in fp32 has no useful bound above."""


@dataclass(frozen=True)
class AttentionProblem(FlatProblem):
    """Attention of `batch` x `heads` heads. Raises ProblemError for values out of range.

    Arrays lie as (batch, heads, seq, head_dim) with the last axis contiguous; K and V have kv_heads heads,
    each for heads / kv_heads successive heads of Q. causal: 1 if query i sees the keys up to
    i + seq_kv - seq_q only, else 0.
    """

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_kv: int
    head_dim: int
    causal: int = 0

    op: ClassVar[str] = "attention"
    id_format: ClassVar[str] = "{dtype}-b{batch}-h{heads}-g{kv_heads}-q{seq_q}-k{seq_kv}-d{head_dim}[-causal]"
    example_id: ClassVar[str] = "attention-bf16-b1-h32-g8-q4096-k4096-d128-causal"

    def __post_init__(self) -> None:
        for name, known in (("dtype", ATTENTION_DTYPES), ("head_dim", HEAD_DIMS), ("causal", (0, 1))):
            self._require(name, known)
        self._require_integers(("batch", "heads", "kv_heads", "seq_q", "seq_kv"), most=_MOST_ROWS)
        if self.heads % self.kv_heads:
            raise ProblemError(f"heads = {self.heads} is no multiple of kv_heads = {self.kv_heads}")
        if self.causal and self.seq_q > self.seq_kv:
            raise ProblemError(
                f"causal needs seq_q = {self.seq_q} to be at most seq_kv = {self.seq_kv}: the first queries "
                "would see no key"
            )
        if max(self.batch * self.heads * self.seq_q, self.batch * self.kv_heads * self.seq_kv) >= 2**31:
            raise ProblemError("an array would have more than 2^31 rows")

    @property
    def group(self) -> int:
        """Heads of Q for each head of K and V."""
        return self.heads // self.kv_heads

    @property
    def visible(self) -> int:
        """Pairs of a query and a key that it sees, in one head."""
        unseen = self.seq_q * (self.seq_q - 1) // 2 if self.causal else 0
        return self.seq_q * self.seq_kv - unseen

    @property
    def title(self) -> str:
        """`4,096 queries, 4,096 keys, 32 heads of 128 (8 of K, V), n1, causal`."""
        shared = f" ({self.kv_heads} of K, V)" if self.kv_heads != self.heads else ""
        heads = f"{self.heads} heads of {self.head_dim}{shared}"
        causal = ", causal" if self.causal else ""
        return f"{self.seq_q:,} queries, {self.seq_kv:,} keys, {heads}, n{self.batch}{causal}"

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Q, K, V and the result."""
        queries = (self.batch, self.heads, self.seq_q, self.head_dim)
        keys = (self.batch, self.kv_heads, self.seq_kv, self.head_dim)
        return (queries, keys, keys, queries)

    @property
    def flops(self) -> int:
        """Both matrix products, as far as keys are visible."""
        return 4 * self.batch * self.heads * self.visible * self.head_dim


# ---- The project's own attention kernels for the target cpu --------------------------------------


@dataclass(frozen=True)
class AttentionKernel(SizedKernel):
    """One kernel. keys: how many it takes at a time."""

    dtype: str
    head_dim: int
    causal: int
    keys: int

    op = "attention"
    sizes: ClassVar = {"keys": (8, 32, 128)}
