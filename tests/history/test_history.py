"""The history of folders of runs: series, changes, links, nights, artefacts."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.history.made_runs import KERNEL, noisy_means, write_nights, write_run
from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.errors import RecordError
from tile_oracle.history.group import FIGURES, ORACLE, PICK, Group, groups_of
from tile_oracle.history.page import Drawn, Point, history_chart, history_html
from tile_oracle.history.runs import read_runs
from tile_oracle.history.steps import find_steps
from tile_oracle.history.wording import no_step, state_line
from tile_oracle.history.wording import number as figure_text
from tile_oracle.night.nights import Entry, add_to_history
from tile_oracle.report.data import RunInfo, analyse
from tile_oracle.report.files import write_report


def groups_in(root: Path) -> list[Group]:
    return groups_of(read_runs(root).runs)


def test_a_run_has_its_figures(tmp_path: Path) -> None:
    write_run(tmp_path / "one", mean=93.0, measure_s=6.0)
    ((run,),) = (group.runs for group in groups_in(tmp_path))
    assert (run.mean, run.median, run.p10, run.worst, run.coverage) == (93.0, 95.0, 83.0, 73.0, 100.0)
    assert run.device_hours == pytest.approx(4 * 0.09 / 3600)
    assert run.pairs_per_s == pytest.approx(0.5)
    assert run.sources == "a" * 12


def test_problem_sets_and_replays_are_series_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    write_run(tmp_path / "two", number=1, problem_set="bwd_data_smoke")
    write_run(tmp_path / "three", number=2, replayed="oracle.parquet", measure_s=6.0)
    found = groups_in(tmp_path)
    assert [(g.problem_set, g.replayed) for g in found] == [
        ("bwd_data_smoke", False),
        ("forward_smoke", False),
        ("forward_smoke", True),
    ]
    assert found[2].runs[0].device_hours is None  # a replay uses no device


def test_what_changed_and_when(tmp_path: Path) -> None:
    write_nights(
        tmp_path,
        [95.0] * 6,
        picks=lambda n: {0: 2} if n >= 4 else {},
        oracles=lambda n: {3: 3} if n == 2 else {},
        environment=lambda n: {"driver": "new" if n >= 3 else "old"},
        sources=lambda n: ("a" if n < 5 else "b") * 64,
        speed=lambda n: 1.0 if n < 3 else 0.9,
    )
    (group,) = groups_in(tmp_path)
    assert [(mark.at, mark.what) for mark in group.marks] == [(3, "driver"), (5, "sources")]
    assert [(one.at, one.what) for one in group.changes] == [(2, ORACLE), (3, ORACLE), (4, PICK)]
    assert group.changes[0].after == KERNEL.format(3, 8, 8, 8)
    assert group.speed == pytest.approx([100, 100, 100, 90, 90, 90])


def test_a_run_that_lacks_a_problem_hides_no_change(tmp_path: Path) -> None:
    write_run(tmp_path / "a", number=0)
    write_run(tmp_path / "b", number=1, problems=2)
    write_run(tmp_path / "c", number=2, picks={4: 2})
    (group,) = groups_in(tmp_path)
    assert [(one.at, one.what) for one in group.changes] == [(2, PICK)]


def test_the_page_links_reports_and_names_the_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    means = noisy_means(24, 1, noise=0.1)
    means[12:] -= 2
    write_nights(tmp_path / "re ports", means, sources=lambda n: ("a" if n < 12 else "b") * 64)
    assert main(["history", str(tmp_path / "re ports"), "-o", str(tmp_path / "pages" / "h.html")]) == 0
    assert "step: mean efficiency" in capsys.readouterr().out
    page = (tmp_path / "pages" / "h.html").read_text()
    links = set(re.findall(r'href="([^"#]+)"', page))
    assert "../re%20ports/night-0023/report.html" in links
    assert len(links) == 24
    steps = page[page.index('aria-label="Steps of ') :].partition("</table>")[0]
    first = re.sub(r"<[^>]+>", "|", steps.partition("<tbody>")[2].partition("</tr>")[0])
    for said in ("step", "mean efficiency", "-2.0", "0.001", "sources aaaaaaaaaaaa -&gt; bbbbbbbbbbbb"):
        assert said in first
    assert page.count("changed there") == 1, "the heading of the column"
    assert "<script" not in page


def test_runs_of_one_day_are_told_apart_by_the_time(tmp_path: Path) -> None:
    for number, hour in enumerate(("02:15", "03:45")):
        write_run(tmp_path / "runs" / str(number), created=f"2026-01-01T{hour}:00+00:00")
    assert main(["history", str(tmp_path / "runs"), "-o", str(tmp_path / "h.html")]) == 0
    page = (tmp_path / "h.html").read_text()
    assert ">02:15</text>" in page
    assert ">03:45</text>" in page
    assert ">2026-01-01</text>" not in page


def test_marks_of_the_charts_are_numbered_and_listed(tmp_path: Path) -> None:
    write_nights(tmp_path, [95.0] * 6, environment=lambda n: {"driver": str(n // 2)})
    assert main(["history", str(tmp_path)]) == 0
    page = (tmp_path / "history.html").read_text()
    chart = page[page.index("<svg") :].partition("</svg>")[0]
    assert re.findall(r'class="mark-name"[^>]*>(\d+)</text>', chart) == ["1", "2"]
    listed = re.findall(r"<li value=\"(\d+)\">[^<]*driver (\d) -&gt; (\d)", page)
    assert listed == [("2", "1", "2"), ("1", "0", "1")]


def test_a_table_of_runs_has_units_in_its_heading(tmp_path: Path) -> None:
    write_run(tmp_path / "one", measure_s=6.0)
    assert main(["history", str(tmp_path)]) == 0
    page = (tmp_path / "history.html").read_text()
    assert "<figure>" not in page, "one run is no curve"
    runs = page.partition("<h3>Runs</h3>")[2].partition("</table>")[0]
    assert "mean, %</th>" in runs
    assert ">95.00</td>" in runs
    assert ">0.50</td>" in runs
    assert "%" not in runs.partition("<tbody>")[2]


@pytest.mark.parametrize(
    ("value", "shown"), [(93.456, "93.46 %"), (0.00012, "0.00012 %"), (0.0, "0.00 %"), (None, "-")]
)
def test_a_small_figure_is_not_shown_as_0(value: float | None, shown: str) -> None:
    assert figure_text(FIGURES[0], value) == shown


def test_the_axis_of_a_share_ends_at_100_percent() -> None:
    points = [Point("", "", False)] * 3
    chart = history_chart("Coverage", [Drawn("coverage", [100.0] * 3)], points, ["a", "b", "c"], {})
    ticks = [float(text) for text in re.findall(r'text-anchor="end">([\d.]+)</text>', chart)]
    assert max(ticks) == 100.0
    small = history_chart("GPU hours", [Drawn("GPU hours", [0.0001, 0.00013])], points[:2], ["a", "b"], {})
    assert all(len(text) <= 8 for text in re.findall(r'text-anchor="end">([\d.e-]+)</text>', small))


def test_changed_kernels_keep_all_fields_but_those_of_the_problem(tmp_path: Path) -> None:
    write_nights(tmp_path, [95.0, 95.0], oracles=lambda n: {0: 1 + n}, speed=lambda n: 1.0 + 30.0 * n)
    assert main(["history", str(tmp_path)]) == 0
    page = (tmp_path / "history.html").read_text()
    row = page.partition("Problems that changed")[2].partition("<tbody>")[2].partition("</tr>")[0]
    text = re.sub(r"<wbr>", "", row)
    assert ">64x64x64_compv4_intrawave_v2x2x2</td>" in text
    assert re.search(r'title="forward-bf16-[^"]+">\d+x\d+, \d+ to \d+, ', row), "sizes in words, ids on hover"
    assert ">64x64x64_compv5_intrawave_v4x4x4</td>" in text
    assert ">+3,000 %</td>" in text


def test_foreign_text_is_escaped(tmp_path: Path) -> None:
    write_run(tmp_path / "one", device="<script>alert(1)</script>", problem_set="<b>")
    write_run(tmp_path / "two", number=1, device="x\x1b[31m", problem_set="<b>")
    assert main(["history", str(tmp_path)]) == 0
    page = (tmp_path / "history.html").read_text()
    assert "<script>alert" not in page
    assert "<b>" not in page.split("<h2>")[1].split("</h2>")[0]
    assert "\x1b" not in page


def test_json_lists_every_run_and_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_nights(tmp_path, [95.0, 95.5], picks=lambda n: {0: n + 1})
    assert main(["history", str(tmp_path), "--json", "-"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert [run["mean"] for run in group["runs"]] == [95.0, 95.5]
    assert [change["what"] for change in group["changes"]] == ["pick"]


def test_a_damaged_run_is_named_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad", number=1)
    verdict = bad / "verdict.json"
    verdict.write_text(verdict.read_text().replace("95.0", "99.0", 1))
    assert main(["history", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"not shown: {verdict} is damaged" in said
    assert "1 run" in said


def test_incomplete_runs_are_shown_but_not_searched_for_steps(tmp_path: Path) -> None:
    for number in range(12):
        run = write_run(tmp_path / f"n{number:02}", number=number, mean=95 + 0.01 * (number % 3))
        if number > 6:
            verdict = json.loads((run / "verdict.json").read_text())
            verdict["scope"]["complete"] = False
            verdict["efficiency"]["mean_percent"] = 50.0
            for key in ("sha256", "sha256_of"):
                del verdict[key]
            (run / "verdict.json").write_text(json.dumps(verdict))
    (group,) = groups_in(tmp_path)
    assert len(group.runs) == 12
    assert not any(trend.steps for trend in group.trends)


def test_nights_whose_runs_are_gone_stay_in_the_series(tmp_path: Path) -> None:
    write_run(tmp_path / "nights" / "20260110T020000Z" / "forward_smoke-1", number=9)
    figures = ("forward_smoke", "5", "5", "94.00", "96.00", "84.00", "AMD Instinct MI350X", "forward_smoke-1")
    nights = ("20260109T020000Z", "20260110T020000Z")
    rows = [Entry(night, f"2026-01-{night[6:8]}T03:00:00Z", "0", "passed", *figures) for night in nights]
    add_to_history(tmp_path / "kept" / "history.csv", rows)
    (group,) = groups_in(tmp_path)
    assert [(run.folder != "", run.mean) for run in group.runs] == [(False, 94.0), (True, 95.0)]


def test_nights_without_a_run_are_shown_as_what_they_are(tmp_path: Path) -> None:
    """Failed ones, those without a device and killed ones left no figures."""
    for number in (8, 9):
        write_run(tmp_path / f"2026011{number - 8}T020000Z" / "forward_smoke-1", number=number)
    outcomes = ("failed", "device missing", "killed")
    rows = [
        Entry(f"2026011{day}T020000Z", f"2026-01-1{day}T03:00:00Z", "1", outcome)
        for day, outcome in enumerate(outcomes, 2)
    ]
    add_to_history(tmp_path / "history.csv", rows)
    (group,) = groups_in(tmp_path)
    assert [run.state for run in group.runs] == ["passed", "passed", *outcomes]
    assert not any(run.complete for run in group.runs[2:])
    said = state_line(group)
    assert said.startswith("5 runs, the last killed, 3 without figures; too few")
    page = history_html(read_runs(tmp_path), [group], tmp_path / "history.html")
    assert '<span class="badge bad">failed</span>' in page
    assert "device missing" in page


def test_replays_have_no_noise_and_few_runs_tell_nothing(tmp_path: Path) -> None:
    for number in range(12):
        write_run(tmp_path / f"n{number:02}", number=number, mean=95.0)
    (group,) = groups_in(tmp_path)
    assert "12 complete runs" in no_step(group)
    assert state_line(group) == "12 runs, the last passed; mean steady since 2026-01-01"
    assert "no noise" in no_step(replace(group, replayed=True))
    assert no_step(replace(group, runs=group.runs[:1])).startswith("too few runs to tell (1 complete")
    assert (group.hours, replace(group, target="cpu").hours) == ("GPU hours", "core hours")


def test_a_folder_without_runs_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(RecordError, match="not a folder"):
        read_runs(tmp_path / "none")


def test_a_run_s_own_report_is_read(tmp_path: Path) -> None:
    """The report files as a session writes them, without an imitation."""
    problems, kernels = make_problems(6), make_kernels()
    records = make_records(problems, kernels)
    ranked = records[["problem", "kernel"]].assign(predicted_tflops=records["tflops"])
    run = RunInfo("one", "some_set", kernel_set="tiny", arch="gfx950", created="2026-01-01T00:00:00+00:00")
    write_report(tmp_path / "one", analyse(records, problems, ranked, run=run))
    (group,) = groups_in(tmp_path)
    assert (group.problem_set, group.kernel_set, group.target) == ("some_set", "tiny", "gfx950")
    (read,) = group.runs
    assert (read.mean, read.worst, read.coverage) == (100.0, 100.0, 100.0)
    assert set(read.choices["problem"]) == {problem.id for problem in problems}
    assert (read.choices["pick_kernel"] == read.choices["oracle_kernel"]).all()
    assert read.has_report


# Steps are told from noise.


@pytest.mark.parametrize("count", [20, 100])
def test_noise_alone_rarely_has_a_settled_step(count: int) -> None:
    found = [any(step.settled for step in find_steps(noisy_means(count, seed))) for seed in range(60)]
    assert sum(found) <= 3


def test_a_step_of_three_sigma_is_found_with_its_place_and_size() -> None:
    covered = false_alarms = 0
    for seed in range(40):
        values = noisy_means(60, seed, noise=0.3)
        values[40:] -= 0.9
        (step, *others) = sorted(find_steps(values), key=lambda one: abs(one.at - 40))
        false_alarms += sum(one.settled for one in others)
        assert step.settled
        covered += step.first <= 40 <= step.last
        assert abs(step.at - 40) <= 3
        assert step.last - step.first < 8
        assert step.change == pytest.approx(-0.9, abs=0.45)
        assert step.low < step.change < step.high < 0
    assert false_alarms <= 3
    assert covered >= 34  # of 40 at 95 %: 33 or fewer has a probability below 0.01


def test_the_interval_of_the_size_covers_the_truth() -> None:
    covered = 0
    for seed in range(100):
        values = noisy_means(40, seed, noise=0.3)
        values[20:] += 1.5
        (step, *_) = sorted(find_steps(values), key=lambda one: abs(one.at - 20))
        covered += step.low <= 1.5 <= step.high
    assert covered >= 89  # of 100 at 95 %: 88 or fewer has a probability below 0.005


def test_two_steps_are_two() -> None:
    values = noisy_means(90, 5, noise=0.2)
    values[30:] -= 1
    values[60:] += 2
    assert [round(step.change) for step in find_steps(values) if step.settled] == [-1, 2]


def test_exact_series_have_steps_without_noise() -> None:
    (step,) = find_steps(np.array([98.8] * 12 + [98.2] * 12))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one side is exact
        assert [one.at for one in find_steps(np.array([82.1] * 4 + [97.4, 99.7, 98.9, 99.1, 99.6]))] == [4]
    assert (step.at, step.first, step.last, step.settled) == (12, 12, 12, True)
    assert (step.low, step.high) == pytest.approx((-0.6, -0.6))
    assert find_steps(np.full(30, 97.5)) == []


def test_few_nights_settle_nothing() -> None:
    assert find_steps(np.array([95.0, 90.0])) == []
    assert not any(step.settled for step in find_steps(np.array([95.0, 95.1, 94.9, 90.0, 90.1, 89.9])))


def test_one_odd_night_is_no_level() -> None:
    values = noisy_means(30, 3, noise=0.1)
    values[12] -= 3
    assert not any(step.settled for step in find_steps(values))
