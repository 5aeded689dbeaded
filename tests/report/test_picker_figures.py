"""The table of pickers: figures, what they picked from, and paired differences."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.picker import PICKER, Origin
from tile_oracle.judge.selection import select
from tile_oracle.record.final import final_measurements
from tile_oracle.report.picker_figures import PickerFigures, picker_figures, picker_lines, pickers_table

PROBLEMS = [one for one in some_problems(60) if one.ndim == 2 and one.direction == "forward"][:12]
FAST, SLOW = some_kernels(2, PROBLEMS[0])
FINAL = final_measurements(
    frame([record(one, FAST, 100.0) for one in PROBLEMS] + [record(one, SLOW, 60.0) for one in PROBLEMS])
)


def picks(fast: int, of: int = 12) -> pd.DataFrame:
    rows = [(one.id, (FAST if place < fast else SLOW).name, 1.0) for place, one in enumerate(PROBLEMS[:of])]
    table = pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])
    return select(PROBLEMS, FINAL, find_oracles(FINAL), table)


def figures() -> tuple[PickerFigures, PickerFigures]:
    ids = [one.id for one in PROBLEMS]
    origin = Origin(
        PICKER,
        "theirs",
        us_per_pick=12.5,
        rule="by a rule",
        mapped=dict.fromkeys(ids[:6], "another"),
        same_tile=tuple(ids[:2]),
        lacking={ids[11]: "none"},
        fallback=tuple(ids[5:7]),
    )
    judged = picks(12)
    return picker_figures("ours", Origin(), judged), picker_figures(
        "theirs", origin, picks(6, 11), judged=judged
    )


def test_choices_are_judged_apart_by_how_they_were_found() -> None:
    _, theirs = figures()
    assert theirs.problems == 11
    assert {what: number for what, (number, _) in theirs.choices.items()} == {
        "exactly": 5, "same tile and split-K": 2, "nearest": 4, "lacking": 1, "by fallback": 2,
    }  # fmt: skip
    means = [
        theirs.choices[what][1] for what in ("exactly", "nearest", "same tile and split-K", "by fallback")
    ]
    assert means == pytest.approx([60.0, 100.0, 100.0, 80.0])
    assert theirs.mean_percent == pytest.approx((6 * 100 + 5 * 60) / 11)
    assert theirs.coverage_percent == pytest.approx(100 * 11 / 12)


def test_the_difference_is_that_over_the_problems_of_both_with_its_interval() -> None:
    ours, theirs = figures()
    assert ours.difference_mean is None
    found = theirs.difference_mean
    assert found.value == pytest.approx(-5 * 40 / 11)
    assert found.low < found.value < found.high < 0


def test_the_table_fits_into_a_terminal_and_says_what_was_mapped() -> None:
    lines = picker_lines(figures())
    assert max(map(len, lines[:3])) <= 80
    assert lines[0].split() == [
        "pickers,",
        "%",
        "mean",
        "median",
        "P10",
        "top",
        "3",
        "worst",
        "weighted",
        "µs",
        "cover",
    ]
    told = (
        "5 exactly (60.0 %), 2 same tile and split-K (100.0 %), 4 nearest (100.0 %), 1 lacking, "
        "2 by fallback (80.0 %)"
    )
    assert f"  theirs: choices: {told}" in lines
    assert "    by a rule" in lines
    assert picker_lines(figures()[:1]) == []
    assert told in pickers_table(figures()).markdown()
