"""The shipped GEMM sets of other layouts and data types."""

from __future__ import annotations

from functools import cache

import pytest

from tile_oracle.files.data_files import data_folder
from tile_oracle.problem_set import format_problem_set, load_problem_set
from tools.crawl.gemm_kinds import Shapes, gemm_kind_sets

_SETS = cache(gemm_kind_sets)
_NAMES = [f"gemm_{word}_{role}" for word in ("rrr", "crr", "fp16") for role in ("training", "validation")]


def _set(name: str) -> tuple[Shapes, str]:
    return _SETS()[name]


def test_all_of_them_ship() -> None:
    assert sorted(_SETS()) == sorted(_NAMES)


@pytest.mark.parametrize("name", _NAMES)
def test_the_files_are_what_the_code_makes(name: str) -> None:
    shapes, provenance = _set(name)
    text = (data_folder("problems") / f"{name}.csv").read_text()
    assert text == format_problem_set(shapes, shapes.values(), provenance)


@pytest.mark.parametrize("word", ["rrr", "crr", "fp16"])
def test_training_and_validation_share_no_size(word: str) -> None:
    training, validation = (
        {(p.M, p.N, p.K) for p in _set(f"gemm_{word}_{role}")[0]} for role in ("training", "validation")
    )
    assert training
    assert validation
    assert not training & validation


@pytest.mark.parametrize("name", _NAMES)
def test_small_and_large_products_are_there(name: str) -> None:
    rows = [problem.as_row()["M"] for problem in load_problem_set(name).problems]
    assert min(rows) == 1
    assert sum(one >= 1024 for one in rows) >= 0.1 * len(rows)
