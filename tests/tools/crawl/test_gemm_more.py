"""The further training sets of GEMM: odd sizes, more products in rrr and crr; what holds for all of them."""

from __future__ import annotations

from functools import cache

import pytest

from tile_oracle.files.data_files import data_folder
from tile_oracle.problem_set import format_problem_set, load_problem_set
from tools.crawl.gemm_further import further_gemm_sets
from tools.crawl.gemm_more import VOCABULARIES, more_gemm_sets
from tools.crawl.gemm_shapes import Shapes, gemm_sets


@cache
def _sets() -> dict[str, tuple[Shapes, str]]:
    return {**more_gemm_sets(), **further_gemm_sets()}


_NAMES = [
    "gemm_odd_training",
    "gemm_odd_more_training",
    "gemm_rrr_more_training",
    "gemm_crr_more_training",
    "gemm_fp16_more_training",
    "gemm_layers_training",
    "gemm_wide_training",
]
_VALIDATION = ["gemm_validation", "gemm_rrr_validation", "gemm_crr_validation", "gemm_fp16_validation"]


def test_all_of_them_ship() -> None:
    assert sorted(_sets()) == sorted(_NAMES)


@pytest.mark.parametrize("name", _NAMES)
def test_the_files_are_what_the_code_makes(name: str) -> None:
    shapes, provenance = _sets()[name]
    text = (data_folder("problems") / f"{name}.csv").read_text()
    assert text == format_problem_set(shapes, shapes.values(), provenance)


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("other", _VALIDATION)
def test_no_weight_matrix_of_the_validation_sets_is_in_them(name: str, other: str) -> None:
    ours = {(p.N, p.K) for p in _sets()[name][0]}
    assert ours
    assert not ours & {(p.as_row()["N"], p.as_row()["K"]) for p in load_problem_set(other).problems}


@pytest.mark.parametrize(
    ("word", "dtype", "layout"), [("rrr", "bf16", "rrr"), ("crr", "bf16", "crr"), ("fp16", "fp16", "rcr")]
)
def test_further_products_are_not_those_of_the_first_set(word: str, dtype: str, layout: str) -> None:
    first = set(load_problem_set(f"gemm_{word}_training").problems)
    more = _sets()[f"gemm_{word}_more_training"][0]
    assert {(p.dtype, p.layout) for p in more} == {(dtype, layout)}
    assert not first & set(more)


def test_odd_products_come_in_three_layouts_and_have_an_odd_size() -> None:
    odd = _sets()["gemm_odd_training"][0]
    sizes = [{(p.M, p.N, p.K) for p in odd if p.layout == layout} for layout in ("rcr", "rrr", "crr")]
    assert sizes[0] == sizes[1] == sizes[2]
    assert all(n % 8 or k % 8 for _, n, k in sizes[0])
    assert sum("@vocabulary" in source for source in odd.values()) == 3 * 6 * len(VOCABULARIES)


def test_further_odd_products_are_in_rcr_and_new_to_the_training() -> None:
    more = _sets()["gemm_odd_more_training"][0]
    before = {(p.M, p.N, p.K) for p in _sets()["gemm_odd_training"][0]}
    before |= {(p.M, p.N, p.K) for p in gemm_sets()["gemm_training"][0]}
    assert len(more) == 200
    assert {p.layout for p in more} == {"rcr"}
    assert all(p.N % 8 or p.K % 8 for p in more)
    assert not before & {(p.M, p.N, p.K) for p in more}
