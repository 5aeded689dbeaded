"""Attention of a batch of sequences whose keys and values lie in pages of one cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import ClassVar

from tile_oracle.errors import ProblemError
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operation.least_work import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.problem.fields import ELEMENT_BYTES, FlatProblem

DTYPES = ("bf16",)
CACHE_DTYPES = ("bf16", "fp8_e4m3")
HEAD_SIZES = {64: 64, 96: 96, 128: 128, 192: 192, 256: 256, 576: 512}
"""Size of a head of queries and keys -> of its values. 576: MLA's, whose values are the first 512 of keys."""
LATENT, _BEFORE_LATENT = 576, 192
"""MLA's size of a cached row, and its heads' size before queries are multiplied into the latent space."""
PAGE_SIZES = (1, 16, 32, 64, 128, 256)
_ALIGNED = 4
"""Elements of 16 bytes: each list begins at a multiple of it."""


@dataclass(frozen=True)
class PagedAttentionProblem(FlatProblem):
    """Attention of `batch` sequences. Raises ProblemError for values out of range.

    Queries (tokens, heads, head_dim) are the last ones of their sequences, one sequence after the other, and
    see the keys up to their own. seq_q, seq_kv: the most queries and keys of a sequence; 1 query is decode.
    variation: lengths are uniform from 100 - variation percent of these up. lengths_seed: of that choice.
    A page holds `page_size` keys of all kv_heads, then their values; MLA's has rows of 576 for both.
    window: how many keys a query sees, its own and those before; 0: all. sinks: 1 if every head has a number
    that counts as a further score without value.
    """

    dtype: str
    kv_dtype: str
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_kv: int
    head_dim: int
    page_size: int
    window: int = 0
    sinks: int = 0
    variation: int = 0
    lengths_seed: int = 0

    op: ClassVar[str] = "paged_attention"
    id_format: ClassVar[str] = (
        "{dtype}-{kv_dtype}-b{batch}-h{heads}-g{kv_heads}-q{seq_q}-k{seq_kv}-d{head_dim}-p{page_size}"
        "[-w{window}][-sinks][-vary{variation}][-s{lengths_seed}]"
    )
    example_id: ClassVar[str] = "paged_attention-bf16-fp8_e4m3-b64-h32-g8-q1-k8192-d128-p16-w1024-vary50"

    def __post_init__(self) -> None:
        known = (("dtype", DTYPES), ("kv_dtype", CACHE_DTYPES), ("head_dim", HEAD_SIZES))
        for name, values in (*known, ("page_size", PAGE_SIZES), ("sinks", (0, 1))):
            self._require(name, values)
        self._require_integers(("batch",), most=1 << 14)
        self._require_integers(("heads", "kv_heads"), most=1 << 12)
        self._require_integers(("seq_q", "seq_kv"), most=1 << 20)
        self._require_integers(("window", "lengths_seed"), least=0)
        self._require_integers(("variation",), least=0, most=99)
        if self.heads % self.kv_heads:
            raise ProblemError(f"heads = {self.heads} is no multiple of kv_heads = {self.kv_heads}")
        if self.seq_q > self.seq_kv:
            raise ProblemError(
                f"seq_q = {self.seq_q} is more than seq_kv = {self.seq_kv}, which counts queries' own keys"
            )
        if self.head_dim == LATENT and self.kv_heads > 1:
            raise ProblemError(f"head_dim {LATENT} needs kv_heads 1: all heads share MLA's latent rows")
        self._require_size()

    @property
    def title(self) -> str:
        """`decode, 64 x 8,192 keys, 32 heads of 128 (8 of K, V), fp8_e4m3, window 1,024`."""
        queries = "decode" if self.seq_q == 1 else f"{self.seq_q:,} queries"
        shared = f" ({self.kv_heads} of K, V)" if self.kv_heads != self.heads else ""
        more = [self.kv_dtype] if self.kv_dtype != self.dtype else []
        more += [f"window {self.window:,}"] if self.window else []
        more += ["sinks"] if self.sinks else []
        heads = f"{self.heads} heads of {self.head_dim}{shared}"
        return ", ".join((queries, f"{self.batch} x {self.seq_kv:,} keys", heads, *more))

    @property
    def head_dim_v(self) -> int:
        """The size of a head of values and of the result."""
        return HEAD_SIZES[self.head_dim]

    @property
    def group(self) -> int:
        """Heads of queries for each head of keys."""
        return self.heads // self.kv_heads

    @property
    def scale(self) -> float:
        """The factor of scores."""
        return scale_of(self.head_dim)

    @cached_property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """The numbers of queries and keys of each sequence; the first has the most."""
        random = Random(self.lengths_seed)
        factors = [1.0, *(1 - self.variation / 100 * random.random() for _ in range(self.batch - 1))]
        return tuple((max(1, int(self.seq_q * one)), max(1, int(self.seq_kv * one))) for one in factors)

    @cached_property
    def tokens(self) -> int:
        """Queries of all sequences."""
        return sum(queries for queries, _ in self.lengths)

    @property
    def table_width(self) -> int:
        """Pages of the longest sequence: the width of the page table."""
        return -(-self.seq_kv // self.page_size)

    @cached_property
    def pages(self) -> int:
        """Pages of all sequences, of which no two share one."""
        return sum(-(-keys // self.page_size) for _, keys in self.lengths)

    @property
    def row_of_head(self) -> int:
        """Cached values of one key of one head."""
        return self.head_dim if self.head_dim == LATENT else 2 * self.head_dim

    @property
    def places(self) -> tuple[int, int, int]:
        """Where in the array of integers the keys' numbers and the page table begin, and its length. Before
        them is where each sequence's queries begin and end."""
        keys_at = _aligned(self.batch + 1)
        table_at = keys_at + _aligned(self.batch)
        return keys_at, table_at, table_at + _aligned(self.batch * self.table_width)

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Queries, the cache, the integers, the heads' sinks (-inf for none), and the result."""
        cache = (self.pages, self.page_size * self.kv_heads * self.row_of_head)
        queries = (self.tokens, self.heads)
        return (
            (*queries, self.head_dim),
            cache,
            (self.places[-1],),
            (self.heads,),
            (*queries, self.head_dim_v),
        )

    @cached_property
    def bytes(self) -> int:
        """Bytes of operands and result, each moved once."""
        rows = self.tokens * self.heads * ELEMENT_BYTES[self.dtype]
        of_cache = (
            self.pages * self.page_size * self.kv_heads * self.row_of_head * ELEMENT_BYTES[self.kv_dtype]
        )
        return rows * (self.head_dim + self.head_dim_v) + of_cache + 4 * (self.places[-1] + self.heads)

    @cached_property
    def read_keys(self) -> int:
        """Keys of all sequences that some query sees."""
        most = self.window or self.seq_kv
        return sum(min(keys, most + queries - 1) for queries, keys in self.lengths)

    @cached_property
    def visible(self) -> int:
        """Pairs of a query and a key that it sees, in one head."""
        pairs = 0
        for queries, keys in self.lengths:
            most = min(self.window or keys, keys)
            # Queries with fewer keys than the window see 1 + the keys before them.
            few = max(0, min(queries, most - (keys - queries) - 1))
            pairs += few * (keys - queries) + few * (few + 1) // 2 + (queries - few) * most
        return pairs

    @cached_property
    def flops(self) -> int:
        """Both matrix products, as far as keys are visible."""
        return 2 * self.heads * self.visible * (self.head_dim + self.head_dim_v)


def scale_of(head_dim: int) -> float:
    """Returns the factor of scores; MLA's is that of the heads' size before."""
    return float((_BEFORE_LATENT if head_dim == LATENT else head_dim) ** -0.5)


def least_work(problem: PagedAttentionProblem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of queries and of the keys
    and values that some query sees (see `tile_oracle.operation.Operation.least_work`)."""
    p = problem
    cached = p.read_keys * p.kv_heads * p.row_of_head * ELEMENT_BYTES[p.kv_dtype]
    read = cached + p.tokens * p.heads * p.head_dim * ELEMENT_BYTES[p.dtype]
    return p.flops / FEWER_PRODUCTS_OF_MATRICES, read


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED


# ---- The project's own kernels of attention over paged caches for the target cpu -----------------


@dataclass(frozen=True)
class PagedAttentionKernel(SizedKernel):
    """One kernel. keys: how many it takes at a time."""

    dtype: str
    kv_dtype: str
    head_dim: int
    keys: int

    op = "paged_attention"
    sizes: ClassVar = {"keys": (8, 32, 128)}
