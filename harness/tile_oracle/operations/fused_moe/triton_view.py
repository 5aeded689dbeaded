"""What a declaration of a Triton kernel sees of a product of experts."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from tile_oracle.operation import Kind
from tile_oracle.operations.fused_moe.problem import BLOCKS, DTYPES, PRODUCTS, SCALED
from tile_oracle.triton.expression import ExpressionError, Number, cdiv, number
from tile_oracle.triton.views import FIRST, OPERANDS, OUT, SECOND, THIRD, Pointer, ProblemView

_INT_BYTES = 4
_ROWS = ("BLOCK_M", "BLOCK_SIZE_M")


class View(ProblemView):
    """c[pair] = a[pair // top_k] b[expert of the pair]^T, times the pair's weight for `down`.

    tokens, experts, topk, N, K: extents. pairs: tokens topk, vLLM's num_valid_tokens. top_k: pairs that share
    a row of a: topk, and 1 for `down`. product: gate_up or down. a, b (experts, N, K), c (pairs, N),
    topk_weights: arrays by rows; a_scale, b_scale: fp32 of fp8, None for bf16. scale, and their shapes:
    tensor (1), (experts); row (rows of a), (experts, N); block (rows of a, K / 128), (experts, N / 128,
    K / 128); none, of bf16. The lists of sorted pairs are those of the configuration's BLOCK_M (or
    BLOCK_SIZE_M): sorted_token_ids, expert_ids, num_tokens_post_padded, and EM, their most rows.
    """

    op = "fused_moe"
    numbers = (
        *("tokens", "experts", "topk", "N", "K"),
        *(f"{name}_{size}" for size in BLOCKS for name in ("blocks", "count", "ids", "sorted")),
    )
    kinds = MappingProxyType({"dtype": DTYPES, "product": PRODUCTS, "scale": ("block",)})
    arrays = (
        *("a", "b", "c", "topk_weights", "sorted_token_ids", "expert_ids", "num_tokens_post_padded"),
        *("a_scale", "b_scale"),
    )

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.product = str(kind.words["product"])
        self.pairs = self.tokens * self.topk
        self.result_dtype = "bf16"
        down = self.product == "down"
        self.top_k: Number = 1 if down else self.topk
        rows = self.pairs if down else self.tokens
        self.a = Pointer(FIRST, self.dtype, rows * self.K)
        # Without its size, so that kernels for AMD's GPUs do not demand that it is below 2 GiB.
        self.b = Pointer(SECOND, self.dtype)
        self.c = Pointer(OUT, self.result_dtype, self.pairs * self.N)
        roles, depth = iter(OPERANDS[3:]), cdiv(self.K, SCALED)
        self.topk_weights = Pointer(next(roles), "fp32", self.pairs) if down else None
        self.a_scale = self.b_scale = None
        self.scale = "none"
        if self.dtype != "bf16":
            self.scale = str(kind.words["scale"])
            scales: dict[str, tuple[Number, Number]] = {
                "tensor": (1, self.experts),
                "row": (rows, self.experts * self.N),
                "block": (rows * depth, self.experts * cdiv(self.N, SCALED) * depth),
            }
            self.a_scale, self.b_scale = (Pointer(next(roles), "fp32", one) for one in scales[self.scale])

    @classmethod
    def values(cls, problem: Any) -> dict[str, int]:
        """Returns the values of `numbers`."""
        sizes = {name: int(getattr(problem, name)) for name in cls.numbers[:5]}
        places = (value for size in BLOCKS for value in (problem.blocks(size), *problem.lists[size]))
        return sizes | dict(zip(cls.numbers[5:], places, strict=True))

    @property
    def b_of_expert(self) -> Pointer:
        """b, for kernels that add a 64-bit number to it, the same for all lanes, and offsets within one
        expert: Triton may use 32-bit offsets from there where one expert's weights allow it."""
        return Pointer(SECOND, self.dtype, self.N * self.K)

    @property
    def rows_of_block(self) -> int:
        """The configuration's BLOCK_M or BLOCK_SIZE_M. Raises ExpressionError without one."""
        found = next((self.configuration[name] for name in _ROWS if name in self.configuration), None)
        if found not in BLOCKS:
            raise ExpressionError(
                f"a configuration of {self.op} needs {' or '.join(_ROWS)}, one of "
                f"{', '.join(map(str, BLOCKS))}, not {found}"
            )
        return int(found)

    def _list(self, name: str, elements: Number) -> Pointer:
        offset = number(f"{name}_{self.rows_of_block}") * _INT_BYTES
        return Pointer(THIRD, "int32", elements, offset)

    @property
    def blocks(self) -> Number:
        """The most blocks of rows; those from num_tokens_post_padded on have no work."""
        return number(f"blocks_{self.rows_of_block}")

    @property
    def sorted_token_ids(self) -> Pointer:
        """The pairs of all blocks; a number of `pairs` or more is padding."""
        return self._list("sorted", self.blocks * self.rows_of_block)

    @property
    def expert_ids(self) -> Pointer:
        """The expert of each block, -1 for those without work."""
        return self._list("ids", self.blocks)

    @property
    def num_tokens_post_padded(self) -> Pointer:
        """The number of rows of all blocks with work."""
        return self._list("count", 1)

    def usual_arguments(self) -> dict[str, object]:
        """a_ptr, b_ptr, c_ptr, topk_weights_ptr (None for gate_up), sorted_token_ids_ptr, expert_ids_ptr,
        num_tokens_post_padded_ptr, a_scale_ptr, b_scale_ptr (None for bf16), N, K, EM, num_valid_tokens,
        top_k, MUL_ROUTED_WEIGHT and SCALE."""
        return {f"{name}_ptr": getattr(self, name) for name in self.arrays} | {
            "N": self.N,
            "K": self.K,
            "EM": self.blocks * self.rows_of_block,
            "num_valid_tokens": self.pairs,
            "top_k": self.top_k,
            "MUL_ROUTED_WEIGHT": self.topk_weights is not None,
            "SCALE": self.scale,
        }

    def contiguous(self) -> tuple[str, ...]:
        """Returns the extents of the contiguous axes."""
        return ("K", "N")
