"""Suspects are measured again at the end of a session, before a run is accepted or a loss reported."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.pytest_project import PROBLEMS, Project
from tile_oracle.errors import RecordError
from tile_oracle.judge.noise import Margin
from tile_oracle.operation import operation_named
from tile_oracle.record.run import Run
from tile_oracle.session.conclusion import SUSPECTS, conclude, write_suspects
from tile_oracle.session.settle import MOST_ROUNDS, _shown, rounds_ahead, settle, uncertain_picks

JUDGED = ("--problem-set", "four.csv", "--kernel-set", "tiny", "--kernel-budget", "1ms", "--samples", "5")


@pytest.mark.parametrize("step", [settle, lambda session, selected: conclude(session, "", selected)])
def test_a_folder_that_cannot_be_listed_is_an_error_not_an_empty_run(
    step: Callable[[Any, dict[str, int]], object], tmp_path: Path
) -> None:
    run = Run(tmp_path / ("x" * 300), {})  # the system lists no folder with a name of this length
    options = SimpleNamespace(settle_budget_s=1.0, model="auto")
    with pytest.raises(RecordError, match="measurements cannot be read: File name too long"):
        step(SimpleNamespace(run=run, options=options, left_s=None), {})


def rounds_until_enough(unsettled: bool) -> list[int]:
    """Rounds of a suspect before each analysis."""
    done = [0]
    while more := rounds_ahead(done[-1], unsettled=unsettled):
        done.append(done[-1] + more)
    return done


def test_an_unsettled_problem_is_measured_longer_and_analysed_less_often() -> None:
    assert rounds_until_enough(unsettled=False)[-1] == MOST_ROUNDS
    rounds = rounds_until_enough(unsettled=True)
    assert rounds[-1] == 60
    assert rounds[1:5] == [1, 2, 3, 4]
    assert len(rounds) < 20


def test_noisy_picks_are_uncertain_and_the_largest_errors_come_first() -> None:
    ahead = Margin("pick", 0.045, 0.04, 5.0, 2, 1.0, "other", 1.046)
    quiet = Margin("pick", 0.045, 0.001, 5.0, 2, 1.0, "other", 1.046)
    assert uncertain_picks({"noisy": ahead, "quiet": quiet}) == ["noisy"]
    errors = {"most": 0.09, "less": 0.05, "little": 0.01}
    margins = {name: Margin("pick", -0.1, sigma, 5.0, 2, 1.1, "o", 1.0) for name, sigma in errors.items()}
    assert uncertain_picks(margins) == ["most", "less"]
    assert uncertain_picks({"little": margins["little"]}) == ["little"]


def judged(picks: dict[str, str], suspects: tuple[str, ...], accepted: dict[str, str]) -> Any:
    selection = pd.DataFrame(
        [{"problem": one, "pick_kernel": pick, "oracle_kernel": "best"} for one, pick in picks.items()]
    )
    before = {one: SimpleNamespace(pick=pick) for one, pick in accepted.items()}
    return SimpleNamespace(
        selection=selection,
        verdict=SimpleNamespace(suspects=suspects),
        baseline=SimpleNamespace(picks=before) if accepted else None,
        others=(),
    )


def test_the_picks_of_every_picker_are_measured_to_settle_a_run(tmp_path: Path) -> None:
    first = judged({"a": "x", "b": "x"}, ("a",), {})
    first.others = (judged({"a": "y", "b": "z"}, ("a", "b"), {"b": "w"}), judged({"a": "v"}, (), {}))
    write_suspects(tmp_path, first)
    found = pd.read_csv(tmp_path / SUSPECTS).to_numpy().tolist()
    assert found == [["a", "x"], ["a", "best"], ["a", "y"], ["b", "z"], ["b", "best"], ["b", "w"]]
    write_suspects(tmp_path, judged({"a": "x"}, (), {}))
    assert not (tmp_path / SUSPECTS).exists()


@pytest.mark.slow
def test_the_pick_of_a_second_picker_is_measured_again(project: Project) -> None:
    """A slow kernel, which is no leader: only its own picker wants it."""
    project.problem_set("four.csv", PROBLEMS)
    swept = project.pytest(*JUDGED, "--model", "none", "--run-name=swept")
    assert swept.status == 0, swept.output
    records = project.records()
    ok = records[records["status"] == "ok"].sort_values(["tflops", "kernel"])
    slowest = ok.drop_duplicates("problem")[["problem", "kernel"]]
    rows = ok.merge(slowest).drop_duplicates("problem")
    dimensions = operation_named("grouped_conv").free_fields
    rows[list(dimensions)].assign(kernel_name=rows["kernel"], predicted_tflops=1.0).to_csv(
        project.folder / "slowest.csv", index=False
    )
    words = ("--models=single,slowest.csv", "--update-baseline", "--settle-budget", "6s", "--run-name=both")
    finished = project.pytest(*JUDGED, *words)
    assert finished.status == 0, finished.output
    again = project.records(project.folder / "reports" / "both")
    later = set(map(tuple, again.loc[again["round"] >= 2, ["problem", "kernel"]].to_numpy().tolist()))
    assert later & set(map(tuple, slowest.to_numpy().tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["one process", "two workers"])
def test_leaders_of_a_baseline_are_measured_again_in_later_rounds(
    workers: tuple[str, ...], project: Project
) -> None:
    project.problem_set("four.csv", PROBLEMS)
    finished = project.pytest(*JUDGED, *workers, "--update-baseline", "--settle-budget", "6s")
    assert finished.status == 0, finished.output
    assert "measured again in turn, up to " in finished.output
    records = project.records()
    later = records[records["round"] >= 2]
    assert len(later)
    for _, rows in later.groupby("problem"):
        timed = rows.groupby("round")["kernel"].agg(set).sort_index().tolist()
        assert all(len(kernels) > 1 for kernels in timed), "a kernel alone is compared with nothing"
        assert all(before <= after for before, after in pairwise(timed)), "who was a leader stays one"
    assert not records.duplicated(["problem", "kernel", "round"]).any()


def test_the_live_line_says_how_long_measuring_again_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    assert _shown(3, 190.5, 80) == "measuring 3 problems again, for at most 1:30"
    assert _shown(1, 90.0, 30) == "measuring 1 problem again, for"
