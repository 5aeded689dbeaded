"""The gate-up or down product of a mixture of experts, with tokens sorted by experts before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tile_oracle.errors import ProblemError
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.problem.fields import ELEMENT_BYTES, FlatProblem

DTYPES = ("bf16", "fp8_e4m3")
PRODUCTS = ("gate_up", "down")
SCALES = ("tensor", "row", "block")
BLOCKS = (16, 32, 64, 128, 256)
"""The numbers of rows, BLOCK_SIZE_M, that experts' tokens are padded to multiples of."""
SCALED = 128
"""Elements of fp8 along an axis that share a scale: 1 x 128 of A, 128 x 128 of the weights of an expert."""
MOST_EXTENT = 16_384
"""The largest hidden or intermediate size: sums of so many products are exact in fp32 in every order."""
_ALIGNED = 4
"""Elements of 16 bytes: each list begins at a multiple of it."""


def is_kind(words: Mapping[str, Any]) -> bool:
    """Returns whether a data type has such scales."""
    return bool(words["dtype"] != "bf16" or words["scale"] == "block")


@dataclass(frozen=True)
class FusedMoeProblem(FlatProblem):
    """One product. Raises ProblemError for values out of range.

    Each of `tokens` is routed to `topk` different of `experts`: a pair of token and expert has a row of the
    result. gate_up: rows of A (tokens, hidden) by the experts' weights B (experts, 2 intermediate, hidden).
    down: rows of A (tokens, topk, intermediate), one for each pair, by B (experts, hidden, intermediate),
    times the pair's routing weight. hidden, intermediate: sizes of the layer on one device.
    scale, of fp8_e4m3, in fp32: `tensor`, one for A and one for each expert of B; `row`, (rows of A) and
    (experts, N); `block`, (rows of A, K / 128) and (experts, N / 128, K / 128). bf16 has none.
    zipf: hundredths of the exponent of Zipf's law by which experts are chosen, 0 for a uniform choice.
    hot: percent of the tokens that choose one certain expert besides. routing_seed: of the random choice.
    """

    dtype: str
    product: str
    tokens: int
    experts: int
    topk: int
    hidden: int
    intermediate: int
    zipf: int = 0
    hot: int = 0
    routing_seed: int = 0
    scale: str = "block"

    op: ClassVar[str] = "fused_moe"
    later: ClassVar = {"scale": "block"}
    id_format: ClassVar[str] = (
        "{dtype}[-{scale}]-{product}-t{tokens}-e{experts}-k{topk}-h{hidden}-i{intermediate}"
        "[-zipf{zipf}][-hot{hot}][-s{routing_seed}]"
    )
    example_id: ClassVar[str] = "fused_moe-bf16-gate_up-t64-e8-k2-h4096-i14336-zipf100"

    def __post_init__(self) -> None:
        self._require("dtype", DTYPES)
        self._require("product", PRODUCTS)
        self._require("scale", SCALES)
        if not is_kind(self.as_row()):
            raise ProblemError(
                f"bf16 has no scales: leave out the scale {self.scale}, or give the dtype fp8_e4m3"
            )
        self._require_integers(("tokens",), most=1 << 20)
        self._require_integers(("experts",), most=4096)
        self._require_integers(("topk",), most=self.experts)
        self._require_integers(("hidden", "intermediate"), most=MOST_EXTENT)
        self._require_integers(("zipf",), least=0, most=1000)
        self._require_integers(("hot",), least=0, most=100)
        self._require_integers(("routing_seed",), least=0)
        self._require_size()

    @property
    def title(self) -> str:
        """`gate_up, 64 tokens to 2 of 8 experts, 4,096 by 14,336, zipf 100`: the layer's sizes are hidden by
        intermediate."""
        experts = (
            f"{self.tokens:,} token{'s' if self.tokens > 1 else ''} to {self.topk} of {self.experts} experts"
        )
        uneven = [f", {name} {value}" for name, value in (("zipf", self.zipf), ("hot", self.hot)) if value]
        uneven += [f", scales by {self.scale}"] if self.scale != "block" else []
        return f"{self.product}, {experts}, {self.hidden:,} by {self.intermediate:,}{''.join(uneven)}"

    @property
    def pairs(self) -> int:
        """Pairs of a token and an expert of it: the rows of the product."""
        return self.tokens * self.topk

    @property
    def N(self) -> int:
        """Columns of the product."""
        return self.hidden if self.product == "down" else 2 * self.intermediate

    @property
    def K(self) -> int:
        """Depth of the product."""
        return self.intermediate if self.product == "down" else self.hidden

    @property
    def rows_of_a(self) -> int:
        """Rows of A of one token."""
        return self.topk if self.product == "down" else 1

    def blocks(self, size: int) -> int:
        """Returns the most blocks of `size` rows that all pairs fill, when each expert's rows are padded."""
        return -(-min(self.pairs * size, self.pairs + self.experts * (size - 1)) // size)

    @cached_property
    def lists(self) -> Mapping[int, tuple[int, int, int]]:
        """Size of a block -> where in the routing array the number of padded rows, the blocks' experts and
        the sorted pairs begin. Before all are the experts of each token; key 0 has the array's length."""
        places, end = {}, _aligned(self.pairs)
        for size in BLOCKS:
            experts, sorted_pairs = end + _ALIGNED, end + _ALIGNED + _aligned(self.blocks(size))
            places[size] = (end, experts, sorted_pairs)
            end = sorted_pairs + _aligned(self.blocks(size) * size)
        return {**places, 0: (end, end, end)}

    @property
    def scaled(self) -> bool:
        """Whether A and B have scales."""
        return self.dtype != "bf16"

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """A and the result with a row a token, B, the routing array, the weights of pairs (`down`), and the
        scales of A and B (fp8)."""
        more: list[tuple[int, ...]] = [(self.tokens, self.topk)] if self.product == "down" else []
        if self.scaled:
            depth = -(-self.K // SCALED)
            scales: Mapping[str, list[tuple[int, ...]]] = {
                "tensor": [(1,), (self.experts,)],
                "row": [(self.tokens, self.rows_of_a), (self.experts, self.N)],
                "block": [(self.tokens, self.rows_of_a * depth), (self.experts, -(-self.N // SCALED), depth)],
            }
            more += scales[self.scale]
        a, out = (self.tokens, self.rows_of_a * self.K), (self.tokens, self.topk * self.N)
        return (a, (self.experts, self.N, self.K), (self.lists[0][0],), *more, out)

    @property
    def result_dtype(self) -> str:
        """The data type of the result."""
        return "bf16"

    @cached_property
    def bytes(self) -> int:
        """Bytes of operands and result, each moved once, as if every expert had tokens."""
        a, b, *numbers, result = map(math.prod, self.operand_shapes)
        return ELEMENT_BYTES[self.dtype] * (a + b) + 2 * result + 4 * sum(numbers)

    @cached_property
    def flops(self) -> int:
        """2 pairs N K; padding counts nothing."""
        return 2 * self.pairs * self.N * self.K


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED


# ---- The project's own products of experts for the target cpu ------------------------------------


@dataclass(frozen=True)
class FusedMoeKernel(SizedKernel):
    """One kernel. rows: of a block of sorted pairs; 1: pairs in the order of tokens, without the lists.
    columns: of the result that are computed at a time."""

    dtype: str
    product: str
    rows: int
    columns: int
    scale: str = "block"

    op = "fused_moe"
    sizes: ClassVar = {"rows": (1, *BLOCKS), "columns": (1, 4, 16)}
