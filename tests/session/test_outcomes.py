"""How a session ends: criteria as test items, and an exit status for each outcome."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.pytest_project import PROBLEMS, TWO_KERNELS, Finished, Project
from tests.samples import ONE_AND_TWO_WORKERS
from tests.session.recorded import SET, Recorded, make_recorded
from tile_oracle.errors import HarnessError
from tile_oracle.judge.baseline import load_baseline, save_baseline
from tile_oracle.session.outcome import ALLOWABLE, MEANINGS, Outcome, most_severe, read_allowed

ROOT = Path(__file__).parents[2]
REPLAY = ("--problem-set", SET, "--target", "replay")
WORKERS = pytest.mark.parametrize("more", ONE_AND_TWO_WORKERS)


@pytest.fixture(scope="module")
def recorded(make_project: Callable[[], Project]) -> Recorded:
    """A project with a model and a recorded oracle, whose sessions need no device and take seconds."""
    made = make_recorded(make_project())
    assert made.project.pytest(*REPLAY, "--update-baseline", "--run-name=accepted").status == 0
    return made


@pytest.fixture(scope="module")
def strict(recorded: Recorded) -> str:
    """--baseline-dir with a baseline that no model reaches: only coverage and new failures pass."""
    baseline = recorded.oracle.with_suffix(".json")
    accepted = load_baseline(baseline)
    path = recorded.project.folder / "strict" / baseline.relative_to(recorded.project.folder / "models")
    save_baseline(replace(accepted, efficiencies=dict.fromkeys(accepted.efficiencies, 1.0)), path)
    return "--baseline-dir=strict"


FAILING = ("--mean-tolerance=0", "--problem-tolerance=0")
"""With the strict baseline, mean and largest loss fail for any model."""


def items_of(finished: Finished) -> dict[str, str]:
    """Criterion -> outcome, from the output of -rA."""
    found = re.findall(r"^(PASSED|FAILED) tile_oracle::verdict\[(.+?)\]", finished.output, re.MULTILINE)
    return {name: outcome for outcome, name in found}


# ---- the items --------------------------------------------------------------------------------------


@WORKERS
def test_a_criterion_that_is_not_met_is_a_failed_test(
    recorded: Recorded, strict: str, more: tuple[str, ...]
) -> None:
    done = recorded.project.pytest(*REPLAY, strict, *FAILING, *more, "-rA", "--junitxml=failed.xml")
    assert done.status == 1
    items = items_of(done)
    assert (items["mean"], items["largest loss"]) == ("FAILED", "FAILED")
    assert (items["coverage"], items["new failures"]) == ("PASSED", "PASSED")
    failed = list(items.values()).count("FAILED")
    assert done.counts() == {"failed": failed, "passed": 12 + 6 - failed}
    assert re.search(r"^mean is [\d.]+ %, must be >= 100\.00 % \(baseline 100\.00 %\)", done.output, re.M)
    losses = re.findall(r"^  100\.0 % -> [\d.]+ %  forward-bf16\S+: pick \S+, oracle \S+$", done.output, re.M)
    assert len(losses) == len(set(losses)) > 0, "several criteria failed, and the losses are printed once"
    assert len(re.findall(r"^  report    /.*/report\.html$", done.output, re.M)) == 1

    (suite,) = ElementTree.parse(recorded.project.folder / "failed.xml").getroot().iter("testsuite")
    assert (suite.attrib["failures"], suite.attrib["tests"]) == (str(failed), "18")
    (mean,) = (case for case in suite.iter("testcase") if case.attrib["name"] == "verdict[mean]")
    failure = mean.find("failure")
    assert failure.attrib["message"].startswith("mean is ")
    assert "\n" not in failure.attrib["message"]
    assert "largest losses" in (failure.text or "")
    (loss,) = (case for case in suite.iter("testcase") if case.attrib["name"] == "verdict[largest loss]")
    assert "largest losses: see verdict[mean]" in (loss.findtext("failure") or "")


@pytest.mark.slow
def test_lf_repeats_the_sweep_after_a_failed_verdict(recorded: Recorded, strict: str) -> None:
    args = (*REPLAY, strict, *FAILING)
    assert recorded.project.pytest(*args).status == 1
    again = recorded.project.pytest(*args, "--lf")
    assert again.status == 1
    assert sum(again.counts().values()) == 12 + 6, "all problems: a verdict is about all of them"
    passed = recorded.project.pytest(*REPLAY, "--lf")
    assert (passed.status, passed.counts()) == (0, {"passed": 18})


@pytest.mark.slow
def test_each_of_several_sets_has_its_criteria(recorded: Recorded) -> None:
    name = recorded.project.problem_set("again.csv", tuple(p.id for p in recorded.problems[:3])).name
    sets = ("--problem-set", f"{SET},{name}", f"--oracle={recorded.oracle}", "--kernel-set=tiny")
    done = recorded.project.pytest(*sets, "-v", "--model=made_up")
    assert "tile_oracle::verdict[layers-mean] PASSED" in done.output
    assert "tile_oracle::verdict[again-mean] SKIPPED (no baseline: " in done.output
    assert done.status == Outcome.NO_BASELINE
    assert done.counts() == {"passed": 12 + 6, "skipped": 6}


@pytest.mark.slow
def test_new_failures_are_listed_in_their_criterion(recorded: Recorded, tmp_path: Path) -> None:
    from tile_oracle.record.dataset_file import write_dataset

    records = recorded.records.copy()
    worst = records["problem"] == recorded.problems[0].id
    slowest = records[worst].sort_values("tflops").index[0]
    records.loc[slowest, ["status", "detail"]] = ["wrong", "1 of 9 values wrong"]
    write_dataset(records, tmp_path / "wrong.parquet")
    done = recorded.project.pytest(
        "--problem-set", SET, f"--oracle={tmp_path / 'wrong.parquet'}", "--kernel-set=tiny"
    )
    assert done.status == 1
    assert done.counts() == {"passed": 12 + 5, "failed": 1}
    assert "new failures is 1, must be <= 0" in done.output
    assert re.search(r"^  wrong  \S+ on forward-bf16\S+: 1 of 9 values wrong$", done.output, re.M)


# ---- outcomes and exit statuses -----------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_judged_is_not_a_pass(project: Project) -> None:
    """With one problem there are no others to train an out-of-fold model on."""
    one = ("--problem-set", "one.csv", *TWO_KERNELS, "--model=out-of-fold")
    project.problem_set("one.csv", PROBLEMS[:1])
    done = project.pytest(*one)
    assert done.status == Outcome.NOTHING_JUDGED == 14
    assert "nothing judged: no model ranked the kernels" in done.output
    assert done.counts() == {"passed": 2, "skipped": 6}
    assert project.pytest(*one, "--resume", "--allow=nothing-judged").status == 0
    updated = project.pytest(*one, "--resume", "--update-baseline")
    assert updated.status == Outcome.NOTHING_JUDGED
    assert "baseline not updated: " in updated.output
    asked_for = project.pytest("--problem-set", "one.csv", *TWO_KERNELS, "--resume")
    assert (asked_for.status, asked_for.counts()) == (0, {"passed": 2}), "--model none asks for no verdict"


@WORKERS
def test_a_missing_device(project: Project, more: tuple[str, ...]) -> None:
    hidden = ("--problem-set", "small.csv", "--target", "gfx950", *more)
    done = project.pytest(*hidden)
    if "cannot run here" not in done.output:
        pytest.skip("this machine has an AMD GPU")
    assert done.status == Outcome.DEVICE_MISSING == 15
    assert "--target gfx950 cannot run here: no " in done.output
    assert "Traceback" not in done.output
    if more:
        return  # what is allowed is read in the main process, whoever runs the tests
    assert project.pytest(*hidden, "--allow", "device-missing").status == 0
    mistaken = project.pytest(*hidden, "--allow", "no-device")
    assert mistaken.status == pytest.ExitCode.USAGE_ERROR


# ---- the names ----------------------------------------------------------------------------------------


def test_outcomes_are_allowed_by_name_and_the_most_severe_is_the_exit_status() -> None:
    assert most_severe([]) == Outcome.PASSED
    assert most_severe([Outcome.NO_BASELINE, Outcome.INCOMPLETE]) == Outcome.INCOMPLETE
    assert most_severe(list(Outcome)) == Outcome.FAILED
    assert most_severe(ALLOWABLE) == Outcome.EXPORT_DIFFERS
    taken = {int(status) for status in pytest.ExitCode} - {0, 1}
    assert not taken & set(map(int, Outcome))
    assert read_allowed("no-baseline, in-sample,") == {Outcome.NO_BASELINE, Outcome.IN_SAMPLE}
    assert read_allowed("") == frozenset()
    for wrong in ("failed", "passed", "no baseline", "10"):
        with pytest.raises(HarnessError, match="is not one of no-baseline, cannot-tell, "):
            read_allowed(wrong)


def test_the_documentation_lists_every_outcome() -> None:
    text = (ROOT / "docs" / "gate.md").read_text()
    assert "## Outcomes and exit statuses" in text
    for outcome in Outcome:
        assert re.search(rf"^\| {outcome.words} \| {outcome.value} \|", text, re.M), outcome
        assert MEANINGS[outcome]
    for outcome in ALLOWABLE:
        assert f"`{outcome.option}`" in text
