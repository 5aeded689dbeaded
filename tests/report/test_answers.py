"""The summary and the lost time of a report, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.report.answers import is_it_good, next_commands, where_it_fails
from tile_oracle.report.data import RankedBy, ReportData, RunInfo, analyse
from tile_oracle.report.lost_time import lost_times, time_weighted_percent
from tile_oracle.report.pictures import roofline


def _two_problems(arch: str = "") -> ReportData:
    """The pick reaches 50 % on the first problem and 100 % on the second."""
    problems = some_problems(2)
    a, b = some_kernels(2, problems[0])
    c, d = some_kernels(2, problems[1])
    rows = [record(problems[0], a, 2.0), record(problems[0], b, 1.0)]
    rows += [record(problems[1], c, 2.0), record(problems[1], d, 1.0)]
    records = frame(rows)
    rankings = records[["problem", "kernel"]].assign(predicted_tflops=[1.0, 2.0, 2.0, 1.0])
    run = RunInfo("a", problem_set="s", target="cpu", arch=arch, folder="my reports/a")
    return analyse(records, problems, rankings, run=run, ranked_by=RankedBy("folder", "models/x"))


def test_lost_time_counts_times_and_not_efficiencies() -> None:
    data = _two_problems()
    first, second = (float(flops) for flops in data.selection["flops"])
    lost = lost_times(data.selection)
    assert lost["lost_us"].tolist() == pytest.approx([first / 2.0 / 1e6, 0.0])
    weighted = 100.0 * (first + second) / (2.0 * first + second)
    assert time_weighted_percent(lost) == pytest.approx(weighted)
    assert any(f"{weighted:.1f} %" in sentence for sentence in is_it_good(data))


def test_the_summary_names_the_problem_that_loses_and_what_to_run() -> None:
    data = _two_problems()
    loser = str(data.selection["problem"].iloc[0])
    assert f"{loser} (100.0 %)" in where_it_fails(data)[-1]
    commands = [command for _, command in next_commands(data)]
    assert f"tile-oracle tune {loser} --target cpu" in commands
    assert "pytest --problem-set s --target cpu --update-baseline" in commands


def test_the_session_s_own_command_accepts_its_picks() -> None:
    """Other options would give another baseline: of another oracle, model or pool."""
    data = _two_problems()
    own = "pytest --oracle=reports/a --model=models/mine --update-baseline"
    reason = "to accept these picks as the baseline"
    asked = replace(data, run=replace(data.run, accepting=own))
    assert (reason, own) in next_commands(asked)
    done = replace(data, run=replace(asked.run, options={"--update-baseline": "yes"}))
    assert reason not in dict(next_commands(done))


def test_a_kind_of_all_problems_is_not_where_it_fails() -> None:
    data = _two_problems()
    everywhere = f"{len(data.selection)} problems, mean"
    assert not any(everywhere in sentence for sentence in where_it_fails(data))


def test_a_roofline_needs_known_peaks() -> None:
    assert roofline(_two_problems("never-heard-of"))[0] is None
    assert "not known" in roofline(_two_problems("never-heard-of"))[1]
    chart, note = roofline(_two_problems("gfx950"))
    assert chart is not None
    assert "8,000 GB/s" in note
