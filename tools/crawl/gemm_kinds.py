"""Problem sets of GEMMs of other layouts and data types, made of the shapes of the sets for bf16 and rcr.

`gemm_kind_sets()` makes the problem sets gemm_rrr_training, gemm_rrr_validation and so on. It measures and
downloads nothing.
"""

from __future__ import annotations

import random

from tile_oracle.operations.gemm.problem import GemmProblem
from tools.crawl.gemm_shapes import gemm_sets

KINDS = {
    "rrr": ("bf16", "rrr", 130, 64),
    "crr": ("bf16", "crr", 130, 64),
    "fp16": ("fp16", "rcr", 64, 32),
}
"""Word of the sets' names -> data type, layout, problems of the training and of the validation set."""
_MOST_TFLOP = 2.0

Shapes = dict[GemmProblem, str]


def gemm_kind_sets() -> dict[str, tuple[Shapes, str]]:
    """Set name -> (problems with their sources, provenance text)."""
    made: dict[str, tuple[Shapes, str]] = {}
    shapes = gemm_sets()
    for word, (dtype, layout, *counts) in KINDS.items():
        for role, count in zip(("training", "validation"), counts, strict=True):
            name = f"gemm_{word}_{role}"
            chosen = _chosen(name, shapes[f"gemm_{role}"][0], dtype, layout, count)
            made[name] = (
                chosen,
                f"{name}: {count} products of gemm_{role}, chosen at random among those in bf16 and rcr\n"
                f"of at most {_MOST_TFLOP:g} TFLOP, as {dtype} and {layout}. Made by tools.crawl.gemm_kinds.",
            )
    return made


def _chosen(name: str, shapes: Shapes, dtype: str, layout: str, count: int) -> Shapes:
    """Some of the shapes as problems of another kind, in random order: a part of a set is a sample, too."""
    fit = [
        (problem, source)
        for problem, source in shapes.items()
        if (problem.dtype, problem.layout, problem.split_k) == ("bf16", "rcr", 1)
        and problem.flops <= _MOST_TFLOP * 1e12
    ]
    drawn = random.Random(name).sample(fit, count)
    return {GemmProblem(dtype, layout, one.M, one.N, one.K): source for one, source in drawn}
