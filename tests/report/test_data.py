"""The data behind the reports."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems, some_run
from tile_oracle.errors import RecordError
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import select
from tile_oracle.record.final import final_measurements
from tile_oracle.record.schema import arrow_schema
from tile_oracle.report.data import RunInfo, Scope, analyse
from tile_oracle.report.html import report_html
from tile_oracle.report.terminal import summary_lines

PROBLEMS = some_problems(12)
RUN = RunInfo("a-run")


def test_records_become_oracles_picks_and_a_verdict() -> None:
    records, rankings = some_run(PROBLEMS, 12)
    data = analyse(records, PROBLEMS, rankings, run=RUN)
    final = final_measurements(records)
    expected = select(PROBLEMS, final, find_oracles(final), rankings)
    pd.testing.assert_frame_equal(data.selection.drop(columns="in_sample"), expected)
    assert sum(data.statuses.values()) == len(final)
    assert data.verdict.state == "no baseline"


def test_records_of_other_problems_are_ignored() -> None:
    records, rankings = some_run(PROBLEMS, 6, failures=0.0)
    data = analyse(records, PROBLEMS[:3], rankings, run=RUN)
    assert set(data.final["problem"]) == {problem.id for problem in PROBLEMS[:3]}
    assert data.statuses["ok"] == 18
    assert data.kernels["ok"].sum() == 18


def test_repeatability_comes_from_the_second_round() -> None:
    a, b = some_kernels(2, PROBLEMS[0])
    rows = [record(PROBLEMS[0], a, 3.0), record(PROBLEMS[0], b, 2.9)]
    assert analyse(frame(rows), PROBLEMS[:1], None, run=RUN).repeatability_percent is None
    rows += [record(PROBLEMS[0], a, 1.8, round=1), record(PROBLEMS[0], b, 2.0, round=1)]
    assert analyse(frame(rows), PROBLEMS[:1], None, run=RUN).repeatability_percent == pytest.approx(90.0)


def test_slices() -> None:
    problems = [problem for problem in PROBLEMS if problem.G == 1][:2]
    a, b = some_kernels(2, problems[0])
    rows = [record(p, k, t) for p in problems for k, t in ((a, 1.0), (b, 2.0))]
    rankings = pd.DataFrame(
        [(problems[0].id, a.name, 1.0), (problems[1].id, b.name, 1.0)],
        columns=["problem", "kernel", "predicted_tflops"],
    )
    data = analyse(frame(rows), problems, rankings, run=RUN)
    table = data.slices.set_index("slice")
    assert "grouped" not in table.index
    for name, row in table.iterrows():
        assert row["oracle_over_median"] == pytest.approx(2.0 / 1.5), name
        assert row["min_percent"] in (50.0, 100.0)
        assert row["problems"] == row["covered"]


@pytest.mark.parametrize(
    ("scope", "complete", "left"),
    [
        (Scope(10, 10), True, 0),
        (Scope(10, 8), False, 2),
        (Scope(10, 10, deselected=1), False, 0),
        (Scope(10, 10, stopped="interrupted"), False, 0),
        (Scope(10, 12), True, 0),
    ],
)
def test_a_run_is_complete_when_every_pair_was_measured(scope: Scope, complete: bool, left: int) -> None:
    assert (scope.complete, scope.left) == (complete, left)


def test_bad_records_are_a_one_line_error() -> None:
    with pytest.raises(RecordError) as caught:
        analyse(pd.DataFrame({"a": [1]}), PROBLEMS, None, run=RUN)
    assert "\n" not in str(caught.value)


def test_a_set_without_measurements_is_reported() -> None:
    """A budget may end before the second of two sets begins."""
    recorded = frame([record(PROBLEMS[0], some_kernels(1, PROBLEMS[0])[0], 1.0)])
    as_read = pa.Table.from_pandas(recorded, schema=arrow_schema(), preserve_index=False).to_pandas()
    data = analyse(as_read[as_read["problem"] == "another"], PROBLEMS, None, run=RunInfo("empty"))
    assert data.efficiency.covered == 0
    assert len(data.not_covered) == 1
    assert report_html(data)
    assert summary_lines(data, 80)
