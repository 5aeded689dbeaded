"""The summary in the terminal."""

from __future__ import annotations

import dataclasses

from tests.report.records_factory import accepted, frame, record, some_kernels, some_problems, some_run
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.picker import Origin
from tile_oracle.report.data import ReportData, RunInfo, Scope, analyse
from tile_oracle.report.terminal import summary_lines
from tile_oracle.report.wording import interval

PROBLEMS = some_problems(8)
RUN = RunInfo(
    "a-run",
    problem_set="forward_smoke",
    problem_set_sha256="aa",
    target="cpu",
    device="Some CPU",
    folder="reports/a-run",
    baseline_file="baselines/x.json",
)
MODEL = Origin("out_of_fold", "LightGBM")


RECORDS, RANKINGS = some_run(PROBLEMS, 12)


def a_report(**more: object) -> ReportData:
    return analyse(RECORDS, PROBLEMS, RANKINGS, run=RUN, ranked_by=MODEL, **more)  # type: ignore[arg-type]


def text(data: ReportData, width: int = 100) -> str:
    return "\n".join(summary_lines(data, width))


def test_the_metrics_come_from_the_selection() -> None:
    data = a_report()
    summary = text(data)
    figures = data.efficiency
    for name, value in (
        ("mean", figures.mean_percent),
        ("median", figures.median_percent),
        ("P10", figures.p10_percent),
        ("min", figures.min_percent),
        ("top-1", figures.top_1_percent),
        ("top-5", figures.top_5_percent),
        ("measuring the top 3", figures.measure_top_percent[2]),
    ):
        assert value is not None
        assert f"{name} {value:.1f} %" in summary
    weighted = f"time-weighted {data.time_weighted_percent:.1f} % total time of the oracles / of the picks: "
    assert weighted in " ".join(summary.split())
    assert "8 of 8 problems (100.0 %)" in summary
    assert "forward_smoke on cpu (Some CPU)" in summary
    assert "out-of-fold predictions of LightGBM cross-validated" in summary
    assert "reports/a-run/report.html" in summary
    assert "none yet; --update-baseline writes baselines/x.json" in " ".join(summary.split())


def test_the_five_worst_problems_with_pick_oracle_and_why() -> None:
    kernels = some_kernels(2, PROBLEMS[0])
    rows, ranked = [], []
    for place, problem in enumerate(PROBLEMS):
        rows += [record(problem, kernels[0], 0.1 * (place + 1)), record(problem, kernels[1], 1.0)]
        ranked += [(problem.id, kernels[0].name, 0.9), (problem.id, kernels[1].name, 0.8)]
    rankings = frame([]).reindex(columns=["problem", "kernel", "predicted_tflops"])
    rankings = rankings.reindex(range(len(ranked)))
    rankings[["problem", "kernel", "predicted_tflops"]] = ranked
    data = analyse(frame(rows), PROBLEMS, rankings, run=RUN, ranked_by=MODEL)
    summary = text(data)
    block = summary[summary.index("worst problems") : summary.index("verdict")]
    assert [p.id in block for p in PROBLEMS] == [True] * 5 + [False] * 3
    assert block.index(PROBLEMS[0].id) < block.index(PROBLEMS[4].id)
    assert f"10.0 %  {PROBLEMS[0].title}" in block
    assert f"pick     0.1000 TFLOPS  {kernels[0].short_name}" in block
    assert f"oracle    1.000 TFLOPS  {kernels[1].short_name}" in block
    assert "pick predicted 800 % too high, oracle ranked 2 of 2, oracle predicted 20 % too low" in block


def test_failures_are_grouped_by_status_and_the_first_are_named() -> None:
    kernels = some_kernels(6, PROBLEMS[0])
    rows = [record(PROBLEMS[0], k, status="crash", detail="signal 11 (SIGSEGV)") for k in kernels[:5]]
    rows.append(record(PROBLEMS[0], kernels[5], 1.0))
    summary = text(analyse(frame(rows), PROBLEMS[:1], None, run=RUN))
    assert "crash: 5 pairs" in summary
    assert "1 ok, 5 crash" in summary
    assert summary.count("signal 11 (SIGSEGV)") == 3
    assert "and 2 more" in summary


def test_a_change_that_is_known_exactly_is_one_number() -> None:
    verdict = a_report(baseline=accepted(a_report())).verdict
    mean = verdict.criteria[0]
    assert interval(dataclasses.replace(mean, low=-1.25, high=-1.25, confidence=0.95)) == "-1.25"
    assert interval(dataclasses.replace(mean, low=-0.0, high=0.0, confidence=0.95)) == "+0.00"
    assert interval(dataclasses.replace(mean, low=-1.25, high=0.5, confidence=0.95)) == "-1.25 to +0.50"


def test_pairs_left_by_a_budget_are_counted() -> None:
    summary = text(a_report(scope=Scope(planned=200, measured=96, stopped="the budget of 10m is spent")))
    assert "96 pairs measured, 104 pairs left; stopped early: the budget of 10m is spent" in summary


def test_a_perfect_model() -> None:
    (kernel,) = some_kernels(1, PROBLEMS[0])
    rankings = frame([record(PROBLEMS[0], kernel)])[["problem", "kernel"]].assign(predicted_tflops=1.0)
    summary = text(analyse(frame([record(PROBLEMS[0], kernel)]), PROBLEMS[:1], rankings, run=RUN))
    assert "every pick is as fast as the oracle" in summary
    assert "worst problems" not in summary


def test_lines_keep_to_the_width() -> None:
    data = a_report(criteria=Criteria())
    for width in (1, 60, 80, 120, 200):
        assert max(map(len, summary_lines(data, width))) <= max(width, 60)


def test_a_long_path_stands_beside_its_name() -> None:
    data = a_report()
    folder = f"/runs/{'deep/' * 40}run"
    data = dataclasses.replace(data, run=dataclasses.replace(data.run, folder=folder))
    assert f"report        {folder}/report.html" in summary_lines(data, 80)


def test_a_criterion_is_one_line_of_80_columns() -> None:
    data = a_report(baseline=accepted(a_report()), criteria=Criteria())
    lines = summary_lines(data, 80)
    for one in data.verdict.criteria:
        (line,) = (line for line in lines if line.startswith(f"  {one.name}  "))
        assert line.rstrip().endswith(interval(one))


def test_throttling_is_reported() -> None:
    data = a_report()
    assert "throttled" not in text(data)
    said = {"throttled": "3 of 96 measurements (power cap)"}
    hot = dataclasses.replace(data, run=dataclasses.replace(data.run, environment=said))
    assert "the GPU was throttled during 3 of 96 measurements (power cap)" in text(hot)
