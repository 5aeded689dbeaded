"""The large training sets of GEMM: layers of further models, wide sizes. See also test_gemm_more."""

from __future__ import annotations

from functools import cache

import pytest

from tile_oracle.problem_set import load_problem_set
from tools.crawl.gemm_further import FURTHER_MODELS, further_gemm_sets
from tools.crawl.gemm_shapes import TRAINING_MODELS, VALIDATION_MODELS

_SETS = cache(further_gemm_sets)
_NAMES = ["gemm_layers_training", "gemm_wide_training"]
_EARLIER = ["gemm_training", "gemm_odd_training", "gemm_odd_more_training"]


def _sizes(name: str) -> list[tuple[int, int, int]]:
    rows = [problem.as_row() for problem in load_problem_set(name).problems]
    return [(int(row["M"]), int(row["N"]), int(row["K"])) for row in rows]


def test_no_product_is_in_two_training_sets() -> None:
    all_of_them = [size for name in (*_NAMES, *_EARLIER) for size in set(_sizes(name))]
    assert len(set(all_of_them)) == len(all_of_them)


@pytest.mark.parametrize("name", _NAMES)
def test_they_are_small_products_in_bf16_and_rcr(name: str) -> None:
    shapes = _SETS()[name][0]
    assert len(shapes) > 400
    assert {(p.dtype, p.layout, p.split_k) for p in shapes} == {("bf16", "rcr", 1)}
    assert all(p.flops <= 0.2e12 for p in shapes)


def test_each_models_sizes_are_listed_once() -> None:
    names = [model.name for model in (*FURTHER_MODELS, *TRAINING_MODELS, *VALIDATION_MODELS)]
    assert len(set(names)) == len(names)
    sources = {source.split("@")[0] for source in _SETS()["gemm_layers_training"][0].values()}
    assert sources <= {model.name for model in FURTHER_MODELS}
