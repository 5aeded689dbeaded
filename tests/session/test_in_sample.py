"""Models judged on their training problems, and pools that make the choice easier."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.made_records import make_problems
from tests.pytest_project import Project
from tests.samples import ONE_AND_TWO_WORKERS, slow
from tests.session.recorded import SET, Recorded, make_recorded, records_of, train_model
from tile_oracle.commands.evaluate import picker_for, rank_recorded, training_lines
from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.files.data_files import data_folder
from tile_oracle.model.store import read_json
from tile_oracle.record.dataset import load_records
from tile_oracle.report.files import verdict_document
from tile_oracle.report.terminal import summary_lines
from tile_oracle.session.conclusion import Conclusion, conclude
from tile_oracle.session.opening import open_session
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.outcome import Outcome, most_severe
from tile_oracle.training.trained_on import overlap, trained_on

REPLAY = ("--problem-set", SET, "--target", "replay")
SHIPPED = sorted(path.parent for path in data_folder("models").glob("*/feature_spec.json"))


@pytest.fixture(scope="module")
def recorded(make_project: Callable[[], Project]) -> Recorded:
    """A project with a model that is judged on unseen problems, and three other models."""
    made = make_recorded(make_project())
    assert made.project.pytest(*REPLAY, "--update-baseline", "--run-name=accepted").status == 0
    models = made.model.parent
    others = make_problems(52, seed=3)[12:]
    train_model(made.records, models / "all_seen")
    few = records_of([*made.problems[:3], *others], made.kernels, seed=1)
    # The rows of three problems, which also judge it.
    few = pd.concat(
        [made.records[made.records["problem"].isin(_ids(made, 3))], few[~few["problem"].isin(_ids(made, 3))]]
    )
    train_model(few, models / "few_seen")
    shutil.copytree(made.model, models / "silent")
    manifest = models / "silent" / "train_manifest.json"
    for file in (manifest, models / "silent" / "out_of_fold.parquet"):
        file.unlink(missing_ok=True)
    for name in ("all_seen", "few_seen", "silent"):
        for baseline in made.model.glob("*/*/*.json"):
            place = models / name / baseline.relative_to(made.model)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(baseline.read_bytes())
    return made


def _ids(recorded: Recorded, count: int) -> list[str]:
    return [problem.id for problem in recorded.problems[:count]]


@dataclass(frozen=True)
class Judged:
    """The end of a replayed session, run in this process, which takes a tenth of the time."""

    conclusion: Conclusion
    allowed: frozenset[Outcome]

    @property
    def status(self) -> int:
        return most_severe(self.conclusion.outcomes - self.allowed)

    @property
    def output(self) -> str:
        return "\n".join([*summary_lines(self.conclusion.data), self.conclusion.baseline_note])

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(json.dumps(verdict_document(self.conclusion.data)))
        return document


Judge = Callable[..., Judged]


@pytest.fixture
def judged(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, read_command_line: Callable[..., SessionOptions]
) -> Judge:
    """judged(model, *options): a session that replays the project's oracle, or that of --oracle."""
    monkeypatch.chdir(recorded.project.folder)

    def judge(model: str, *options: str) -> Judged:
        own = any(option.startswith("--oracle") for option in options)
        more = options if own else (*options, f"--oracle={recorded.oracle}")
        name = f"--run-name={model}{len(recorded.project.runs)}"
        asked = read_command_line(f"--problem-set={SET}", f"--model={model}", name, *more)
        session = open_session(asked)
        session.open_run()
        selected = {}
        for problem in session.plan.problems:
            kernels = session.plan.asked(problem)
            selected[problem.id] = len(kernels)
            session.replayed(problem, kernels)
        session.close()
        (conclusion,) = conclude(session, "", selected)
        return Judged(conclusion, session.options.allow)

    return judge


# ---- sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ONE_AND_TWO_WORKERS)
def test_a_model_judged_on_its_training_problems_does_not_pass(
    recorded: Recorded, more: tuple[str, ...]
) -> None:
    name = f"seen{len(more)}"
    done = recorded.project.pytest(
        "--problem-set", SET, f"--oracle={recorded.oracle}", "--model=all_seen", f"--run-name={name}", *more
    )
    document = recorded.project.verdict(recorded.project.folder / "reports" / name)
    assert done.status == Outcome.IN_SAMPLE == 13
    assert "verdict in-sample: the model was trained on 12 of the 12 problems that judge it" in done.lines
    assert "in-sample: the model was trained on 12 of 12 problems" in " ".join(done.output.split())
    assert re.search(r"^in-sample     mean [\d.]+ %", done.output, re.M)
    assert not re.search(r"^efficiency    mean", done.output, re.M)
    assert done.counts()["passed"] >= 12
    assert done.counts()["skipped"] >= 4
    assert (document["state"], document["failed"]) == ("in-sample", False)
    training = document["training"]
    assert isinstance(training, dict)
    assert sorted(training["in_sample"]) == sorted(problem.id for problem in recorded.problems)
    assert training["same_measurements"] == 12
    run = recorded.project.folder / "reports" / name
    assert "in-sample" in (run / "summary.md").read_text()
    page = (run / "report.html").read_text()
    assert "this model, in-sample" in page
    assert page.count('<span class="hold">in-sample</span>') == 12
    selection = pd.read_parquet(run / "selection.parquet")
    assert selection["in_sample"].all()


def test_training_problems_are_left_out_of_the_verdict_unless_they_are_allowed(
    recorded: Recorded, judged: Judge
) -> None:
    done = judged("all_seen", "--allow", "in-sample")
    assert done.status in (0, 1), done.output
    assert done.document["state"] in ("passed", "failed")
    assert done.document["verdict"]["compared"] == 12
    assert "counted in the verdict, as --allow in-sample asks" in " ".join(done.output.split())
    done = judged("few_seen")
    assert done.status in (0, 1)
    assert done.document["state"] in ("passed", "failed")
    assert done.document["verdict"]["compared"] == 9
    assert done.document["training"]["in_sample"] == sorted(_ids(recorded, 3))
    assert done.document["training"]["same_measurements"] == 3
    assert "trained on 3 of 12 problems (3 of them by these very" in " ".join(done.output.split())
    assert re.search(r"^efficiency    mean", done.output, re.M)
    assert re.search(r"^in-sample     mean", done.output, re.M)
    gone = done.document["verdict"]["gone_problems"]
    assert not gone, "the baseline's problems are left out with them"


@pytest.mark.slow
def test_an_in_sample_run_makes_no_baseline(recorded: Recorded, judged: Judge) -> None:
    done = judged("all_seen", "--update-baseline", "--baseline-dir=made")
    assert done.status == Outcome.IN_SAMPLE
    assert "baseline not updated: " in done.output
    few = judged("few_seen", "--update-baseline", "--baseline-dir=made")
    assert few.status == 0, few.output
    (path,) = (recorded.project.folder / "made").rglob("*.json")
    efficiencies = json.loads(path.read_text())["efficiencies"]
    assert {problem for problem, value in efficiencies.items() if value is None} == set(_ids(recorded, 3))


def test_a_model_on_unseen_or_unknown_problems_is_judged(recorded: Recorded, judged: Judge) -> None:
    done = judged("silent")
    assert done.status == 0, done.output
    assert "whether it is in-sample is unknown" in " ".join(done.output.split())
    assert done.document["training"]["known"] is False
    done = judged("made_up")
    assert done.status == 0
    assert "in-sample" not in done.output
    assert done.document["training"] == {
        "in_sample": [],
        "same_measurements": 0,
        "known": True,
        "counted": False,
    }


# ---- pools --------------------------------------------------------------------------------------------


def test_a_smaller_pool_is_reported_and_one_candidate_judges_nothing(
    judged: Judge, recorded: Recorded
) -> None:
    done = judged("made_up", "--kernel-filter", "pipeline == 'mem'", "--allow=no-baseline")
    said = " ".join(done.output.split())
    assert "only 4 of 8 recorded kernels were candidates, so this is easier than the full pool" in said
    assert "only 4 of the model's 8 kernels were candidates" in said
    assert done.document["candidates"]["ranked"] == 4
    one = recorded.kernels[0]
    only = f"tile_m == {one.tile_m} and tile_n == {one.tile_n} and pipeline == '{one.pipeline}'"
    done = judged("made_up", "--kernel-filter", only)
    assert done.document["candidates"]["ranked"] == 1
    assert done.status == Outcome.NOTHING_JUDGED
    assert done.document["state"] == "nothing judged"
    assert "verdict nothing judged: each problem has one candidate" in done.output
    assert "only 1 of 8 recorded kernels" in " ".join(done.output.split())


def test_a_replay_ranks_the_recorded_kernels_and_tells_of_other_builds(
    recorded: Recorded, judged: Judge, tmp_path: Path
) -> None:
    """Two kernels of the set were never recorded: they are candidates only if --kernel-set names the set."""
    from tile_oracle.record.dataset_file import write_dataset

    never = {kernel.name for kernel in recorded.kernels[:2]}
    write_dataset(recorded.records[~recorded.records["kernel"].isin(never)], tmp_path / "six.parquet")
    asked = (f"--oracle={tmp_path / 'six.parquet'}", "--allow=no-baseline")
    done = judged("made_up", *asked)
    assert done.document["candidates"]["ranked"] == 6
    assert done.document["efficiency"]["covered"] == 12
    assert "never recorded" not in done.output
    whole = judged("made_up", *asked, "--kernel-set=tiny")
    assert "2 candidates never recorded: a pick of one has no efficiency" in " ".join(whole.output.split())
    oracle = load_records(recorded.oracle)
    write_dataset(oracle.assign(toolchain="nvcc 13.0.88"), tmp_path / "nvcc.parquet")
    at_home = judged(recorded.model.name, "--allow=no-baseline")
    assert at_home.document["extrapolating"]["travel"] == ""
    away = judged(recorded.model.name, f"--oracle={tmp_path / 'nvcc.parquet'}", "--allow=no-baseline")
    note = away.document["extrapolating"]["travel"]
    assert "come from different builds (nvcc 13.0.88, the model's " in note
    assert "different builds (nvcc 13.0.88" in " ".join(away.output.split())


# ---- the shipped models ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_no_shipped_model_was_trained_on_its_gate_problems(folder: Path) -> None:
    learnt = trained_on(folder)
    assert learnt.known
    manifest = read_json(folder / "train_manifest.json")
    own = manifest["unique_shapes"]
    if (others := folder / "other_builds.parquet").is_file():
        both = [load_records([folder / name]) for name in ("training.parquet", others.name)]
        ok = [set(rows.loc[rows["status"] == "ok", "problem"]) for rows in both]
        assert (len(ok[0]), set(learnt.problems)) == (own, ok[0] | ok[1])
    else:
        older = manifest.get("warm_start_manifest", {}).get("problems", {})
        assert (len(manifest["problems"]), set(learnt.problems)) == (own, {*manifest["problems"], *older})
    for oracle in folder.glob("*/*/*.parquet"):
        records = load_records([oracle])
        assert not overlap([folder], records, set(records["problem"].unique())).problems


@pytest.mark.slow
def test_gate_and_evaluate_agree_on_a_shipped_model(project: Project) -> None:
    folder = data_folder("models") / "grouped_conv_forward_bf16_cpu"
    (oracle,) = folder.glob("*/*/*.parquet")
    done = project.pytest(
        "--problem-set",
        "forward_unseen_300",
        "--target",
        "replay",
        f"--model={folder}",
        "--allow=no-baseline",
    )
    assert done.status == 0, done.output
    gate = project.verdict()["efficiency"]
    records = load_records([oracle])
    found = evaluate("m", records, rank_recorded(picker_for(str(folder), records), records)[0]).efficiency
    assert isinstance(gate, dict)
    assert gate["covered"] == found.covered == 300
    for name in ("mean_percent", "median_percent", "p10_percent", "min_percent", "top_1_percent"):
        assert gate[name] == pytest.approx(getattr(found, name), abs=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ("all_seen", "made_up", 13, "12 problems, all of which a model was trained on"),
        *slow(("made_up", "all_seen", 13, "12 problems, all of which a model was trained on")),
        ("few_seen", "few_seen", 0, "9 problems that neither model was trained on; 3 others are left out"),
        ("made_up", "made_up", 0, "12 problems\n"),
    ],
)
def test_a_comparison_of_models_leaves_out_training_problems_as_a_session_does(
    recorded: Recorded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    status: int,
    said: str,
) -> None:
    from tile_oracle.cli import main

    models, table = recorded.model.parent, tmp_path / "table.md"
    words = [str(models / old), str(models / new), "--records", str(recorded.oracle)]
    assert main(["compare", *words, "--markdown", str(table)]) == status
    out = capsys.readouterr().out
    assert f"compared: {said}" in out
    state = "in-sample: the model was trained on 12 of the 12" if status else "passed: every criterion is met"
    assert f"verdict: {state}" in out
    assert state in table.read_text()
    assert f"{new} (model)" in table.read_text().replace("\\", "")


def test_evaluate_reports_in_sample_problems(recorded: Recorded) -> None:
    models = recorded.model.parent
    folders = [str(models / name) for name in ("all_seen", "few_seen", "silent", "made_up")]
    lines = training_lines([picker_for(one, recorded.records) for one in folders], recorded.records)
    assert lines[0].startswith("in-sample: all_seen was trained on 12 of the 12 problems (12 of them by")
    assert lines[1].startswith("in-sample: few_seen was trained on 3 of the 12 problems (3 of them")
    assert lines[2].startswith("silent does not record its training problems")
    assert len(lines) == 3
