"""Which picks are explained in a report."""

from __future__ import annotations

from tests.report.records_factory import some_problems, some_run
from tile_oracle.judge.picker import Origin
from tile_oracle.report.data import RunInfo, analyse
from tile_oracle.report.lost_time import lost_times
from tile_oracle.session.beside import to_explain


def test_the_problems_that_a_report_shows_first_are_explained() -> None:
    problems = some_problems(60)
    records, rankings = some_run(problems, 20, failures=0.0)
    run = RunInfo("a-run", target="sm_90", arch="sm_90")
    data = analyse(records, problems, rankings, run=run, ranked_by=Origin("folder", "models/x"))
    explained = to_explain(data)["problem"].tolist()
    covered = data.covered
    worst = set(covered[covered["efficiency"] < 1.0]["problem"].head(10))
    costly = set(lost_times(data.selection)["problem"].head(12))
    assert len(worst) == 10
    assert worst - costly, "otherwise the test shows nothing"
    assert set(explained) == worst | costly
    assert len(explained) == len(set(explained))
