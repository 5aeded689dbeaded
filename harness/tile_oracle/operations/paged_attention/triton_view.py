"""What a declaration of a Triton kernel sees of attention over paged caches."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from tile_oracle.operation import Kind
from tile_oracle.operations.paged_attention.problem import CACHE_DTYPES, DTYPES, HEAD_SIZES, scale_of
from tile_oracle.triton.expression import minimum, number, where
from tile_oracle.triton.views import FIRST, FOURTH, OUT, SECOND, THIRD, Pointer, ProblemView

_INT_BYTES = 4


class View(ProblemView):
    """softmax(q k^T scale) v. The numbers are the problem's fields, tokens: queries of all sequences, pages:
    of the cache, page_shift: log2(page_size), and table_width; head_dim, head_dim_v and scale are known.

    q, out (tokens, heads, head_dim or head_dim_v): arrays. cache: pages of keys (page_size, kv_heads,
    head_dim), then as many values; MLA's have keys of 576 alone. cu_seqlens: where each sequence's queries
    begin, and their number. seqlens: keys. block_table (batch, table_width): pages. sinks: -inf for none.
    """

    op = "paged_attention"
    numbers = (
        *("batch", "heads", "kv_heads", "seq_q", "seq_kv", "page_size", "window", "tokens", "pages"),
        *("table_width", "page_shift", "keys_at_0", "table_at_0"),
    )
    kinds = MappingProxyType({"dtype": DTYPES, "kv_dtype": CACHE_DTYPES, "head_dim": tuple(HEAD_SIZES)})
    arrays = ("q", "cache", "out", "cu_seqlens", "seqlens", "block_table", "sinks")

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.head_dim = int(kind.words["head_dim"])
        self.head_dim_v = HEAD_SIZES[self.head_dim]
        self.scale = scale_of(self.head_dim)
        self.group = self.heads // self.kv_heads
        self.most_visible = where(self.window > 0, minimum(self.window, self.seq_kv), self.seq_kv)
        rows = self.tokens * self.heads
        self.q, self.out = (
            Pointer(role, self.dtype, rows * size)
            for role, size in ((FIRST, self.head_dim), (OUT, self.head_dim_v))
        )
        # Without its size, so that kernels for AMD's GPUs do not demand that it is below 2 GiB.
        self.cache = Pointer(SECOND, str(kind.words["kv_dtype"]))
        self.cu_seqlens = Pointer(THIRD, "int32", self.batch + 1)
        self.seqlens = Pointer(THIRD, "int32", self.batch, number("keys_at_0") * _INT_BYTES)
        table = number("table_at_0") * _INT_BYTES
        self.block_table = Pointer(THIRD, "int32", self.batch * self.table_width, table)
        self.sinks = Pointer(FOURTH, "fp32", self.heads)

    @classmethod
    def values(cls, problem: Any) -> dict[str, int]:
        """Returns the values of `numbers`."""
        keys_at, table_at, _ = problem.places
        known = {name: int(getattr(problem, name)) for name in cls.numbers[:-3]}
        shift = problem.page_size.bit_length() - 1
        return known | {"page_shift": shift, "keys_at_0": keys_at, "table_at_0": table_at}

    def usual_arguments(self) -> dict[str, object]:
        """NAME_ptr of the arrays, the numbers, scale, and the constants HEAD_DIM and HEAD_DIM_V."""
        known = {"scale": self.scale, "HEAD_DIM": self.head_dim, "HEAD_DIM_V": self.head_dim_v}
        return super().usual_arguments() | known

    def contiguous(self) -> tuple[str, ...]:
        """Returns none: the contiguous axis is always a multiple of 16."""
        return ()
