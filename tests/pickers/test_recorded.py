"""Commands that judge by records take pickers of other makers, too."""

from __future__ import annotations

import pytest

from tests.pickers.test_chosen import Told
from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.commands.evaluate import rank_recorded
from tile_oracle.errors import ModelError
from tile_oracle.pickers.installed import Chosen, picker_of

PROBLEMS = [one for one in some_problems(40) if one.ndim == 2 and one.direction == "forward"][:3]
FAST, SLOW, OTHER = some_kernels(3, PROBLEMS[0])
RECORDS = frame([record(one, kernel, 50.0) for one in PROBLEMS for kernel in (FAST, SLOW)]).assign(
    arch="gfx950"
)


def test_a_picker_chooses_among_the_recorded_kernels() -> None:
    choices = {PROBLEMS[0].id: [SLOW, FAST], PROBLEMS[1].id: [OTHER, FAST], PROBLEMS[2].id: []}
    told = Chosen("told", Told(lambda problem: choices[problem.id]), "gfx950")
    table, _ = rank_recorded(told, RECORDS)
    best_first = table.sort_values("predicted_tflops", ascending=False)["kernel"].tolist()
    assert best_first == [SLOW.name, FAST.name], "the second problem's choice is lacking, the third has none"
    assert set(table["problem"]) == {PROBLEMS[0].id}
    silent = Chosen("told", Told(lambda problem: []), "gfx950")
    with pytest.raises(ModelError, match="told has no choice for these problems that the pool has"):
        rank_recorded(silent, RECORDS)


def test_other_words_are_no_pickers() -> None:
    assert picker_of("models/mine", "gfx950", PROBLEMS) is None
    with pytest.raises(ModelError, match=r"none\.csv: there is no such file of picks"):
        picker_of("none.csv", "gfx950", PROBLEMS)
