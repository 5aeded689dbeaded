"""Properties of the shipped attention sets."""

from __future__ import annotations

import pytest

from tile_oracle.files.data_files import data_folder
from tile_oracle.problem_set import format_problem_set, load_problem_set
from tools.crawl.attention_shapes import attention_sets


@pytest.mark.parametrize("name", ["attention_training", "attention_validation"])
def test_the_files_are_what_the_code_makes(name: str) -> None:
    shapes, provenance = attention_sets()[name]
    text = (data_folder("problems") / f"{name}.csv").read_text()
    assert text == format_problem_set(shapes, shapes.values(), provenance)


def test_validation_shares_no_family_with_training() -> None:
    training = load_problem_set("attention_training").problems
    validation = load_problem_set("attention_validation").problems
    assert len(training) >= 200
    assert len(validation) >= 80
    assert not {problem.family for problem in training} & {problem.family for problem in validation}


def test_both_sets_have_prefill_decode_and_attention_without_a_mask() -> None:
    for shapes, _ in attention_sets().values():
        assert sum(p.causal and p.seq_q == p.seq_kv for p in shapes) >= 20
        assert sum(p.seq_q == 1 and p.causal for p in shapes) >= 20
        assert sum(not p.causal for p in shapes) >= 12
        assert {p.head_dim for p in shapes} == {64, 128, 256}
