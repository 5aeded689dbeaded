"""Random problems of every kind, including odd ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tile_oracle.errors import ProblemError
from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.operations.fused_gemm.problem import FusedGemmProblem
from tile_oracle.operations.fused_moe.problem import FusedMoeProblem
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.operations.paged_attention.problem import LATENT, PagedAttentionProblem
from tile_oracle.operations.scaled_gemm.problem import ScaledGemmProblem
from tile_oracle.problem import Kind, Problem


def random_problems(kind: Kind, count: int, seed: int = 0) -> list[Problem]:
    """Different problems of a kind: groups, strides, dilation, extents that no tile divides."""
    random = np.random.default_rng(seed)
    made: dict[Any, Problem] = {}
    while len(made) < count:
        try:
            problem = _MAKERS.get(kind.op, _conv)(kind, random)
        except ProblemError:
            continue  # a filter larger than its image
        made[problem.key] = problem
    return list(made.values())


def _conv(kind: Kind, random: np.random.Generator) -> Problem:
    def one_of(*values: int) -> int:
        return int(random.choice(values))

    direction, dtype, ndim = kind.words.values()
    groups = one_of(1, 1, 1, 2, 4, 32)
    depth: dict[str, int] = {}
    if ndim == 3:
        depth = {"Di": one_of(1, 4, 9), "Z": one_of(1, 2, 3), "stride_d": one_of(1, 2), "pad_d": one_of(0, 1)}
    return GroupedConvProblem(
        str(direction), str(dtype), int(ndim), N=one_of(1, 2, 3, 8, 32, 128), G=groups,
        C=groups * one_of(1, 3, 8, 16, 64, 100, 256), K=groups * one_of(1, 8, 40, 64, 128, 512),
        Hi=int(random.integers(1, 230)), Wi=int(random.integers(1, 230)), Y=one_of(1, 3), X=one_of(1, 3, 7),
        stride_h=one_of(1, 1, 2, 3), stride_w=one_of(1, 1, 2), pad_h=one_of(0, 1, 3), pad_w=one_of(0, 1, 3),
        dilation_h=one_of(1, 1, 2), dilation_w=one_of(1, 1, 2), **depth,
    )  # fmt: skip


def _gemm(kind: Kind, random: np.random.Generator) -> Problem:
    m, n, k = (int(2 ** random.uniform(0, 14)) for _ in range(3))
    return GemmProblem(
        kind.dtype, str(kind.words["layout"]), m, n, k, split_k=int(random.choice([1, 1, 2, 4]))
    )


def _scaled(kind: Kind, random: np.random.Generator) -> Problem:
    m, n, k = (int(2 ** random.uniform(0, 14)) for _ in range(3))
    return ScaledGemmProblem(kind.dtype, str(kind.words["scale"]), m, n, k)


def _experts(kind: Kind, random: np.random.Generator) -> Problem:
    tokens, hidden, intermediate = (int(2 ** random.uniform(0, 13)) for _ in range(3))
    experts = int(random.choice([4, 8, 60, 128, 384]))
    return FusedMoeProblem(
        kind.dtype, str(kind.words["product"]), tokens, experts, int(random.choice([1, 2, 4])), hidden,
        intermediate, int(random.choice([0, 100])), int(random.choice([0, 50, 100])),
        scale=str(kind.words["scale"]),
    )  # fmt: skip


def _fused(kind: Kind, random: np.random.Generator) -> Problem:
    m, n, k, batch = (int(2 ** random.uniform(0, most)) for most in (14, 14, 14, 6))
    layout, epilogue = (str(kind.words[one]) for one in ("layout", "epilogue"))
    return FusedGemmProblem(kind.dtype, layout, epilogue, m, n, k, batch)


def _attention(kind: Kind, random: np.random.Generator) -> Problem:
    keys = int(2 ** random.uniform(0, 14))
    heads = int(random.choice([1, 2, 4, 8]))
    return AttentionProblem(
        kind.dtype, int(random.integers(1, 65)), heads * int(random.choice([1, 4, 8])), heads,
        int(random.choice([1, int(2 ** random.uniform(0, 14))])), keys,
        int(kind.words["head_dim"]), int(kind.words["causal"]),
    )  # fmt: skip


def _paged(kind: Kind, random: np.random.Generator) -> Problem:
    keys = int(2 ** random.uniform(0, 14))
    heads = 1 if kind.words["head_dim"] == LATENT else int(random.choice([1, 2, 4, 8]))
    return PagedAttentionProblem(
        kind.dtype, str(kind.words["kv_dtype"]), int(random.integers(1, 65)),
        heads * int(random.choice([1, 4, 8])), heads,
        int(random.choice([1, int(keys ** random.random())])), keys, int(kind.words["head_dim"]),
        int(random.choice([16, 64])), int(random.choice([0, 128])), int(random.integers(2)),
        int(random.integers(100)),
    )  # fmt: skip


_MAKERS = {
    GemmProblem.op: _gemm,
    AttentionProblem.op: _attention,
    ScaledGemmProblem.op: _scaled,
    FusedMoeProblem.op: _experts,
    FusedGemmProblem.op: _fused,
    PagedAttentionProblem.op: _paged,
}
