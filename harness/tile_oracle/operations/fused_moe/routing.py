"""Which experts each token is routed to, and the lists by which kernels find their rows.

The lists are those that vLLM and SGLang make before the product (moe_align_block_size): pairs sorted by
their expert, each expert's padded to a multiple of the kernel's BLOCK_SIZE_M with a number beyond all pairs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tile_oracle.operation.least_work import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.operations.fused_moe.problem import BLOCKS, FusedMoeProblem
from tile_oracle.problem.fields import ELEMENT_BYTES

Integers = npt.NDArray[np.int32]


@lru_cache(maxsize=8)
def experts_of(problem: FusedMoeProblem) -> Integers:
    """Returns the experts of each token, shape (tokens, topk), each once a token. The same for both products.

    Expert of rank r is drawn with a weight of r^(-zipf / 100), without replacement (Gumbel's trick).
    """
    p = problem
    random = np.random.default_rng((p.routing_seed, p.tokens, p.experts, p.topk, p.zipf, p.hot))
    rank = 1 + random.permutation(p.experts)
    drawn = -np.log(-np.log(random.random((p.tokens, p.experts)))) - p.zipf / 100 * np.log(rank)
    if p.hot:
        drawn[: -(-p.tokens * p.hot // 100), rank == 1] = np.inf
    return np.argpartition(-drawn, p.topk - 1, axis=1)[:, : p.topk].astype(np.int32)


def active_experts(problem: FusedMoeProblem) -> int:
    """Returns how many experts have tokens."""
    return len(np.unique(experts_of(problem)))


def least_work(problem: FusedMoeProblem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of A and of the weights of
    experts that have tokens (see `tile_oracle.operation.Operation.least_work`)."""
    rows = problem.tokens * problem.rows_of_a + active_experts(problem) * problem.N
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES, ELEMENT_BYTES[problem.dtype] * rows * problem.K


def shuffled(problem: FusedMoeProblem, random: np.random.Generator, period: int) -> Integers:
    """Returns the same experts for other tokens and in another order, so that each expert has as many tokens
    as in `experts_of` but others; the tokens repeat after `period`."""
    order = random.permutation(problem.tokens)[:period]
    few = random.permuted(experts_of(problem)[order], axis=1)
    return np.resize(few, (problem.tokens, problem.topk))


def routing_array(problem: FusedMoeProblem, chosen: Integers) -> Integers:
    """Returns the experts of each token, and all lists, at the places `problem.lists`."""
    flat, pairs = chosen.reshape(-1), problem.pairs
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat, minlength=problem.experts)
    array = np.full(problem.lists[0][0], -1, np.int32)
    array[:pairs] = flat
    for size in BLOCKS:
        padded = -(-counts // size) * size
        total, (count_at, experts_at, pairs_at) = int(padded.sum()), problem.lists[size]
        array[count_at] = total
        array[experts_at : experts_at + total // size] = np.repeat(np.arange(problem.experts), padded // size)
        array[pairs_at : pairs_at + problem.blocks(size) * size] = pairs
        shift = (np.cumsum(padded) - padded) - (np.cumsum(counts) - counts)
        array[pairs_at + np.arange(pairs) + shift[flat[order]]] = order
    return array
