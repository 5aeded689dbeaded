"""The summary and the lost time of a report, against figures worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tests.report.records_factory import accepted, frame, record, some_kernels, some_problems
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.picker import Origin
from tile_oracle.judge.verdict import FAILED, NO_BASELINE
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.report.answers import is_it_good, next_steps, where_it_fails
from tile_oracle.report.data import ReportData, RunInfo, Scope, analyse
from tile_oracle.report.html import report_html
from tile_oracle.report.lost_time import (
    combined_name,
    losing_slices,
    lost_times,
    shares_by_kind,
    time_weighted_percent,
)
from tile_oracle.report.picker_figures import PickerFigures
from tile_oracle.report.pictures import roofline, spots


def _two_problems(arch: str = "", baseline: Baseline | None = None) -> ReportData:
    """The pick reaches 50 % on the first problem and 100 % on the second."""
    problems = some_problems(2)
    a, b = some_kernels(2, problems[0])
    c, d = some_kernels(2, problems[1])
    rows = [record(problems[0], a, 2.0), record(problems[0], b, 1.0)]
    rows += [record(problems[1], c, 2.0), record(problems[1], d, 1.0)]
    records = frame(rows)
    rankings = records[["problem", "kernel"]].assign(predicted_tflops=[1.0, 2.0, 2.0, 1.0])
    run = RunInfo("a", problem_set="s", target="cpu", arch=arch, folder="my reports/a")
    given = {"run": run, "ranked_by": Origin("folder", "models/x"), "baseline": baseline}
    return analyse(records, problems, rankings, criteria=Criteria(rule="published"), **given)  # type: ignore[arg-type]


def _proposed(data: ReportData) -> dict[str, str]:
    """What for -> the command that is proposed."""
    return {step.reason: step.command for step in next_steps(data)}


def test_lost_time_counts_times_and_not_efficiencies() -> None:
    data = _two_problems()
    first, second = (float(flops) for flops in data.selection["flops"])
    lost = lost_times(data.selection)
    assert lost["lost_us"].tolist() == pytest.approx([first / 2.0 / 1e6, 0.0])
    weighted = 100.0 * (first + second) / (2.0 * first + second)
    assert time_weighted_percent(lost) == pytest.approx(weighted)
    said = " ".join(is_it_good(data))
    assert f"{weighted:.1f} %" in said
    assert f"take {100.0 * (100.0 / weighted - 1.0):.1f} % longer than with the oracles" in said


def test_the_summary_names_the_problem_that_loses_and_what_to_run() -> None:
    data = replace(_two_problems(), ranked_by=Origin("out_of_fold"))
    loser = str(data.selection["problem"].iloc[0])
    assert where_it_fails(data)[-1] == f"by problem, {loser} alone: 100.0 % of the lost time."
    commands = _proposed(data).values()
    assert "tile-oracle model train 'my reports/a' -o models/next" in commands
    assert "pytest --problem-set s --target cpu --update-baseline" in commands


def test_a_run_below_the_working_directory_is_named_by_its_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = replace(_two_problems(), ranked_by=Origin("out_of_fold"))
    data = replace(data, run=replace(data.run, folder=str(tmp_path / "reports" / "a")))
    monkeypatch.chdir(tmp_path)
    assert "tile-oracle model train reports/a -o models/next" in _proposed(data).values()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    absolute = f"tile-oracle model train {tmp_path}/reports/a -o models/next"
    assert absolute in _proposed(data).values()


def test_the_session_s_own_command_accepts_its_picks() -> None:
    """Other options would give another baseline: of another oracle, model or pool."""
    data = _two_problems()
    own = "pytest --oracle=reports/a --model=models/mine --update-baseline"
    reason = "to accept these picks as the baseline"
    asked = replace(data, run=replace(data.run, accepting=own))
    assert _proposed(asked)[reason] == own
    done = replace(data, run=replace(asked.run, options={"--update-baseline": "yes"}))
    assert reason not in _proposed(done)
    passed = replace(asked, baseline=accepted(data))
    assert reason not in _proposed(passed)
    other = PickerFigures("theirs", 2, 90.0, state=NO_BASELINE)
    found = _proposed(replace(passed, beside=(other,)))
    assert (found["to accept the picks of theirs as their baselines"], reason in found) == (own, False)


def test_an_incomplete_run_is_not_accepted_but_goes_on() -> None:
    data = _two_problems()
    accepting = "pytest --problem-set s --resume --update-baseline"
    run = replace(data.run, accepting=accepting, resuming="pytest --problem-set s --resume")
    fewer = replace(data.efficiency, covered=1)
    part = replace(data, run=run, efficiency=fewer, scope=Scope(planned=4, measured=2, stopped="budget"))
    left = data.selection.assign(coverage=["covered", "not measured"])
    commands = _proposed(replace(part, selection=left)).values()
    assert accepting not in commands
    assert "pytest --problem-set s --resume" in commands
    suggest = "tile-oracle runs suggest 'my reports/a' --model models/x --problem-set s --csv next.csv"
    assert suggest in commands


def test_a_failed_run_is_compared_with_its_baseline_or_accepted() -> None:
    data = _two_problems()
    baseline = accepted(data)
    better = replace(baseline, efficiencies=dict.fromkeys(baseline.efficiencies, 1.0))
    run = replace(data.run, baseline_file="models/x/base line.json", accepting="pytest --update-baseline")
    failed = replace(_two_problems(baseline=better), run=run)
    assert failed.verdict.state == FAILED
    found = list(_proposed(failed).items())
    assert found[0][1] == "tile-oracle runs compare 'models/x/base line.json' 'my reports/a' --by pick"
    assert found[-1] == ("to accept the loss as the new baseline, if it is intended", run.accepting)


def test_kinds_are_combined_where_the_combination_loses_the_time() -> None:
    odd = [one.id for one in _layers(*(f"n1-c{c}-k64-i28x28-f1x1" for c in (65, 66, 67)))]
    plain = [one.id for one in _layers(*(f"n1-c{64 * c}-k64-i28x28-f1x1" for c in range(1, 9)))]
    others = [one.id for one in _layers(*(f"n1-c{c}-k64-i28x28-f3x3-p1" for c in (65, 66, 64, 128)))]
    lost = _losing({**dict.fromkeys(odd, 25.0), **dict.fromkeys([*plain, *others], 1.0)})
    first = losing_slices(lost)[0]
    assert (first.name, first.problems) == ("1x1 with odd channels", 3)
    assert first.mean_percent == pytest.approx(80.0)
    assert first.lost_percent == pytest.approx(100.0 * 75 / 87)


def test_a_kind_of_all_problems_is_not_where_it_fails() -> None:
    data = _two_problems()
    everywhere = f"{len(data.selection)} problems, mean"
    assert not any(everywhere in sentence for sentence in where_it_fails(data))


def _layers(*ids: str) -> list[Problem]:
    return [problem_from_id(f"forward-bf16-{one}") for one in ids]


def _losing(lost_us: Mapping[str, float]) -> pd.DataFrame:
    """A table of lost times; every oracle takes 100 us."""
    table = pd.DataFrame({"problem": list(lost_us), "lost_us": list(lost_us.values())})
    table = table.assign(oracle_us=100.0, pick_us=100.0 + table["lost_us"])
    return table.assign(efficiency=table["oracle_us"] / table["pick_us"])


def test_a_kind_of_all_problems_has_all_of_the_lost_time() -> None:
    """Sums of floats in another order were 99.999999 %, which is shown as 99.9."""
    layers = [one.id for one in _layers(*(f"n{n}-c64-k64-i28x28-f1x1" for n in range(1, 200)))]
    lost = _losing({layer: 0.1 * 1.37**place for place, layer in enumerate(layers)})
    assert shares_by_kind(lost)["1x1"] == 100.0


def test_kinds_that_lose_their_share_are_not_named() -> None:
    names = [f"n{n}-c{c}-k64-i28x28-{f}" for n in (1, 2, 3) for c in (64, 65) for f in ("f1x1", "f3x3-p1")]
    assert losing_slices(_losing(dict.fromkeys([one.id for one in _layers(*names)], 5.0))) == []


def test_a_problem_is_counted_for_one_of_the_named_kinds_only() -> None:
    """Otherwise their shares of the lost time add up to more than all of it."""
    deep = [one.id for one in _layers(*(f"n1-g64-c64-k64-i{i}x{i}-f3x3-s2-p1" for i in (28, 56)))]
    plain = [one.id for one in _layers(*(f"n1-c{64 * c}-k64-i28x28-f1x1" for c in range(1, 9)))]
    found = losing_slices(_losing({**dict.fromkeys(deep, 50.0), **dict.fromkeys(plain, 1.0)}))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        (("1x1", "odd channels"), "1x1 with odd channels"),
        (("3x3", "depthwise"), "depthwise 3x3"),
        (("large M", "deep"), "large M, deep"),
        (("few rows", "columns no multiple of 16"), "few rows, columns no multiple of 16"),
    ],
)
def test_combined_kinds_are_named_as_engineers_do(kinds: tuple[str, str], name: str) -> None:
    assert combined_name(*kinds) == name


def test_the_mean_is_set_beside_what_it_is_judged_by() -> None:
    data = replace(_two_problems(), fixed_mean_percent=61.6, repeatability_percent=99.9)
    mean = data.efficiency.mean_percent
    assert mean is not None
    said = " ".join(is_it_good(data))
    assert f"{99.9 - mean:.1f} points below the winners of one sweep (99.9 %)" in said
    assert f"{mean - 61.6:.1f} points above the best single kernel (61.6 %)" in said


def test_the_best_single_kernel_as_a_picker_is_named_once() -> None:
    beside = (PickerFigures("single", 2, 61.6), PickerFigures("theirs", 1, 90.0))
    data = replace(_two_problems(), fixed_mean_percent=61.6, beside=beside)
    names = [name for _, name in spots(data)]
    assert names == ["best single kernel 61.6 %", "theirs, on 1 problem 90.0 %"]
    assert " ".join(is_it_good(data)).count("best single kernel") == 1


def test_without_a_model_nothing_is_said_of_picks_and_the_run_can_be_used() -> None:
    problems = some_problems(2)
    rows = [record(p, k, t) for p in problems for k, t in zip(some_kernels(2, p), (2.0, 1.0), strict=True)]
    run = RunInfo("a", problem_set="s", target="cpu", folder="reports/a")
    data = analyse(frame(rows), problems, None, run=run)
    assert where_it_fails(data) == ["No pick was measured."]
    assert list(_proposed(data).values()) == [
        "tile-oracle model train reports/a -o models/next",
    ]
    page = report_html(data)
    for section in ("judgement", "efficiency"):
        assert f'<section id="{section}"' not in page, "it would only repeat the head"
    kinds = page[page.index('<section id="slices"') :].partition("</table>")[0]
    assert "oracle / median kernel" in kinds
    assert "P10" not in kinds


def test_a_roofline_needs_known_peaks() -> None:
    assert roofline(_two_problems("never-heard-of"))[0] is None
    assert "not known" in roofline(_two_problems("never-heard-of"))[1]
    chart, note = roofline(_two_problems("gfx950"))
    assert chart is not None
    assert "8,000 GB/s" in chart
    assert "gfx950" in note
