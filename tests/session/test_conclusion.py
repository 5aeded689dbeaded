"""The gate at the end of a session: baselines, verdicts, known failures, exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.processes import run_python
from tests.pytest_project import PROBLEMS, QUICK, TWO_KERNELS, Finished, Project
from tile_oracle.judge.baseline import load_baseline, save_baseline
from tile_oracle.record.dataset import load_records
from tile_oracle.session.conclusion import device_conditions
from tile_oracle.session.outcome import Outcome

JUDGED = ("--problem-set", "four.csv", *QUICK, "--model", "out-of-fold")
TWO_JUDGED = ("--problem-set", "four.csv", *TWO_KERNELS, "--model", "out-of-fold")
LENIENT = [f"--{name}-tolerance=100" for name in ("mean", "median", "p10", "problem")]
"""Kernels of a microsecond, timed for a millisecond, have other efficiencies in every run."""


def baseline_of(project: Project) -> tuple[Path, dict[str, Any]]:
    (path,) = (project.folder / "models").rglob("*.json")
    return path, json.loads(path.read_text())


# ---- efficiencies -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def accepted(make_project: Callable[[], Project]) -> tuple[Project, Finished]:
    """A project with an accepted baseline, and its run."""
    project = make_project()
    project.problem_set("four.csv", PROBLEMS)
    return project, project.pytest(*JUDGED, "--update-baseline")


@pytest.mark.slow
def test_worse_efficiencies_fail_a_session_without_failed_tests(accepted: tuple[Project, Finished]) -> None:
    project, _ = accepted
    path, _ = baseline_of(project)
    accepted_one = load_baseline(path)
    better = replace(accepted_one, efficiencies=dict.fromkeys(accepted_one.efficiencies, 1.0))
    elsewhere = project.folder / "better" / path.relative_to(project.folder / "models")
    save_baseline(better, elsewhere)
    strict = ("--mean-tolerance=0", "--problem-tolerance=0", "--criteria=published")
    finished = project.pytest(*JUDGED, "--resume", "--baseline-dir", "better", *strict)
    efficiency = json.loads((project.run / "verdict.json").read_text())["efficiency"]
    if efficiency["min_percent"] == 100:  # by its own times: leaders are measured again
        pytest.skip("every pick of this run was the oracle: nothing can be worse than its baseline")
    counts = finished.counts()
    assert counts["passed"] + counts["failed"] == 32 + 6
    assert counts["failed"] >= 2, "mean and largest loss at least"
    assert finished.status == 1
    (verdict,) = (line for line in finished.lines if line.startswith("verdict FAILED: criteria not met: "))
    assert "mean" in verdict
    assert "largest loss" in verdict
    forgiven = project.pytest(*JUDGED, "--resume", "--baseline-dir", "better", *LENIENT)
    assert forgiven.status == 0


# ---- failures ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_known_failures_xfail_healed_ones_are_reported_new_ones_fail(project: Project) -> None:
    project.problem_set("four.csv", PROBLEMS)
    bad = project.compiler("bad-clang", {"TO_PACK_AB": "wrong"})
    worse = project.compiler("worse-clang", {"TO_PACK_AB": "crash", "TO_DIRECT": "build_error"})

    first = project.pytest(*TWO_JUDGED, "--toolchain", bad, "--update-baseline")
    assert first.status == 1, "failures that nobody has accepted are red"
    assert first.counts() == {"passed": 4, "failed": 4, "skipped": 6}
    _, baseline = baseline_of(project)
    compv3 = "grouped_conv_forward_fp32_2d_16x16x64_compv3_intrawave_w1x1x1_wt4x16x1"
    assert baseline["known_failures"] == {problem: {compv3: "wrong"} for problem in PROBLEMS}

    known = project.pytest(*TWO_JUDGED, *LENIENT, "--toolchain", bad, "-rx")
    assert known.counts() == {"passed": 4 + 6, "xfailed": 4}
    assert known.status == 0, known.output
    assert "known since the baseline (wrong): wrong: 1 of 128 values wrong" in known.output
    assert "known failures\n  wrong: 4 pairs" in known.output

    healed = project.pytest(*TWO_JUDGED, *LENIENT)
    assert healed.status == 0
    assert healed.counts() == {"passed": 8 + 6}
    assert "4 known failures healed: " in healed.output

    new = project.pytest(*TWO_JUDGED, *LENIENT, "--toolchain", worse, "-rx")
    assert new.status == 1
    # No problem has an efficiency: coverage and new failures fail, the other criteria are not applied.
    assert new.counts() == {"xfailed": 4, "failed": 4 + 2, "skipped": 4}
    assert "new failures" in next(line for line in new.lines if line.startswith("verdict FAILED: "))
    assert "known since the baseline (wrong): crash: killed by SIGSEGV" in new.output


# ---- models -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_trained_on_a_run_is_found_and_judged(project: Project) -> None:
    """The model's picks are measured again with the leaders: no pick can beat its oracle by luck."""
    project.problem_set("four.csv", PROBLEMS)
    measured = ("--problem-set", "four.csv", *QUICK, "--model", "auto")
    assert project.pytest(*measured, "--allow=no-baseline").status == 0
    (run,) = (project.folder / "reports").iterdir()
    train = ("train", run, "-o", "models/mine", "--arch", "cpu")
    run_python("-m", "tile_oracle.cli", *train, cwd=project.folder, check=True)
    judged = project.pytest(*measured, "--run-name=judged", "-v")
    assert judged.status == Outcome.IN_SAMPLE, judged.output
    assert any(line.startswith("model: mine (") for line in judged.lines)
    verdict = json.loads((project.folder / "reports" / "judged" / "verdict.json").read_text())
    assert verdict["model"]["kind"] == "folder"
    selection = pd.read_parquet(project.folder / "reports" / "judged" / "selection.parquet")
    records = load_records(project.folder / "reports" / "judged")
    for problem, pick in zip(selection["problem"], selection["pick_kernel"], strict=True):
        rounds = [records[(records["problem"] == problem) & (records["round"] == n)] for n in (0, 1)]
        swept = rounds[0].query("status == 'ok'").set_index("kernel")["latency_ms"]
        if pick in swept:
            assert pick in set(rounds[1]["kernel"]) or swept[pick] > 2 * swept.min()


# ---- condition of the device --------------------------------------------------------------------------


def test_clocks_and_throttling_are_summarised() -> None:
    states = {
        "clock_mhz": [1980, 1410, None],
        "memory_clock_mhz": [None, None, None],
        "temperature_c": [50, 60, 55],
        "power_w": [300.0, 699.6, None],
        "throttled": ["", "power cap, hardware slowdown", None],
    }
    assert device_conditions(pd.DataFrame(states)) == {
        "clock": "1410 to 1980 MHz",
        "temperature": "50 to 60 \N{DEGREE SIGN}C",
        "power": "300 to 700 W",
        "throttled": "1 of 2 measurements (hardware slowdown, power cap)",
    }
    assert device_conditions(pd.DataFrame({name: [None] for name in states})) == {}
