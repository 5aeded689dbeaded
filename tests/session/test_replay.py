"""Sessions that replay recorded measurements: the gate on a machine without the device."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from tests.pytest_project import Finished
from tests.session.recorded import DEVICE, SET, Recorded, measured, records_of, train_model
from tile_oracle.commands.merge import write_oracle
from tile_oracle.errors import HarnessError
from tile_oracle.evaluation.folder_model import Folders
from tile_oracle.judge.baseline import Baseline, save_baseline
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.selector.export import export_model
from tile_oracle.session.beside import exports_differ
from tile_oracle.session.models import ModelChoice
from tile_oracle.session.opening import open_session
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.outcome import Outcome
from tile_oracle.session.replay_session import ReplaySession

SHIPPED = ("--problem-set", SET, "--target", "replay")


@pytest.fixture(scope="module")
def accepted(recorded: Recorded) -> Finished:
    """The first session: its efficiencies become the baseline."""
    return recorded.project.pytest(*SHIPPED, "--update-baseline", "--run-name=accepted")


def figures(recorded: Recorded, run: str) -> dict[str, float]:
    verdict = recorded.project.verdict(recorded.project.folder / "reports" / run)
    efficiency = verdict["efficiency"]
    assert isinstance(efficiency, dict)
    return efficiency


# ---- what is replayed -------------------------------------------------------------------------------


def test_the_oracle_of_the_model_is_replayed_described_and_written_as_a_run(
    recorded: Recorded, accepted: Finished
) -> None:
    assert accepted.status == 0, accepted.output
    pairs = len(recorded.problems) * len(recorded.kernels)
    assert accepted.counts() == {"passed": len(recorded.problems), "skipped": 6}
    assert f"{len(recorded.problems)} problems, {pairs} pairs replayed" in accepted.output
    assert figures(recorded, "accepted")["mean_percent"] > 95
    assert f"baseline written: {recorded.oracle.with_suffix('.json')}" in accepted.output
    baseline = json.loads(recorded.oracle.with_suffix(".json").read_text())
    assert (baseline["device"], baseline["target"], baseline["kernel_set"]) == (DEVICE, "gfx950", "tiny")
    assert "target: replay (shipped with made_up), nothing is built or measured" in accepted.lines
    assert (
        f"records: 96 pairs of 12 problems and 8 kernels, measured 2026-01-02 on {DEVICE} (gfx950)"
        in accepted.lines
    )
    assert f"oracle: {recorded.oracle}" in accepted.lines
    folder = recorded.project.folder / "reports" / "accepted"
    for name in ("selection.parquet", "verdict.json", "summary.md", "report.html"):
        assert (folder / name).stat().st_size > 500
    order = ["problem", "kernel"]
    replayed = load_records(folder).sort_values(order, ignore_index=True)
    original = recorded.records.sort_values(order, ignore_index=True)
    for name in (
        "run",
        "problem",
        "kernel",
        "status",
        "latency_ms",
        "tflops",
        "device",
        "time",
        "source_hash",
    ):
        assert replayed[name].tolist() == original[name].tolist()


# ---- the gate ---------------------------------------------------------------------------------------


def test_records_of_cold_and_warm_caches_are_refused_before_the_session(recorded: Recorded) -> None:
    mixed = recorded.project.folder / "mixed.parquet"
    rows = load_records(recorded.oracle)
    rows.loc[rows.index[:2], "cache"] = "cold"
    write_dataset(rows, mixed)
    refused = recorded.project.pytest("--oracle", str(mixed))
    assert refused.status == 4
    assert "the records are of cold and warm caches" in refused.last


@pytest.mark.usefixtures("accepted")
def test_a_damaged_baseline_is_found_before_the_first_measurement(recorded: Recorded) -> None:
    baseline = recorded.oracle.with_suffix(".json")
    elsewhere = recorded.project.folder / "broken" / baseline.relative_to(recorded.project.folder / "models")
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("{")
    finished = recorded.project.pytest(*SHIPPED, "--baseline-dir", "broken", "--tb=short")
    assert finished.status == 4
    assert f"{elsewhere} is not JSON" in finished.output
    assert "restore it from version control" in finished.output
    assert "passed" not in finished.output, "it is read before the first kernel is measured"
    assert "Traceback" not in finished.output


# ---- pytest's own options ---------------------------------------------------------------------------


@pytest.mark.usefixtures("accepted")
def test_a_kernel_filter_narrows_the_pool(recorded: Recorded) -> None:
    done = recorded.project.pytest(*SHIPPED, "--kernel-filter", "pipeline == 'mem'")
    assert done.status == Outcome.NO_BASELINE
    assert "12 problems, 48 pairs replayed" in done.output
    assert "note: 4 recorded kernels are not candidates in --kernel-set tiny" in done.output


@pytest.mark.slow
@pytest.mark.usefixtures("accepted")
def test_a_resumed_replay_adds_no_duplicates(recorded: Recorded) -> None:
    part = recorded.project.pytest(*SHIPPED, "-k", recorded.problems[0].id, "--run-name=resumed")
    assert part.status == Outcome.INCOMPLETE
    whole = recorded.project.pytest(*SHIPPED, "--resume", "--run-name=resumed")
    assert "(resumed)" in whole.output
    rows = pd.read_parquet(recorded.project.folder / "reports" / "resumed" / "measurements")
    assert len(rows) == len(recorded.records)
    assert not rows.duplicated(["problem", "kernel", "round"]).any()


def test_a_user_s_test_gets_all_recorded_measurements_of_a_problem(recorded: Recorded) -> None:
    recorded.project.write(
        "test_all.py",
        """        def test_it(problem, replayed):
            found = replayed(problem)
            assert len(found) == len(list(found)) == 8
            assert found[0] == list(found)[0] and found[-1] == found[7] and found[2:4] == list(found)[2:4]
            assert all(one.problem == problem and one.ok == (one.tflops > 0) for one in found)
            assert len({one.kernel for one in found}) == 8 and min(one.latency_ms for one in found) > 0
        """,
    )
    done = recorded.project.pytest("test_all.py", *SHIPPED, "--model=none")
    assert done.status == 0, done.output
    assert done.counts() == {"passed": 12}


@pytest.mark.slow
def test_recorded_failures_are_reported_but_fail_no_test(recorded: Recorded, tmp_path: Path) -> None:
    bad, worst = recorded.problems[0], recorded.problems[1]
    rows = recorded.records.copy()
    wrong = (rows["problem"] == bad.id) & (rows["kernel"] == recorded.kernels[0].name)
    rows.loc[wrong | (rows["problem"] == worst.id), "status"] = "wrong"
    write_dataset(rows, tmp_path / "wrong.parquet")
    oracle = f"--oracle={tmp_path / 'wrong.parquet'}"
    done = recorded.project.pytest(
        "--problem-set", SET, oracle, "--kernel-set=tiny", "--model=none", "-rx", f"--report-dir={tmp_path}"
    )
    assert done.status == 0, done.output
    assert done.counts() == {"passed": 11, "xfailed": 1}
    assert "wrong: 9 pairs" in done.output
    assert "no kernel is ok" in done.output


# ---- errors -----------------------------------------------------------------------------------------


@pytest.fixture
def session_of(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, read_command_line: Callable[..., SessionOptions]
) -> Callable[..., ReplaySession]:
    """Opens the session of a command line in the project, as pytest does at its start."""
    monkeypatch.chdir(recorded.project.folder)

    def make(*arguments: str) -> ReplaySession:
        session = open_session(read_command_line(f"--problem-set={SET}", *arguments))
        assert isinstance(session, ReplaySession)
        return session

    return make


def test_invalid_options_are_a_one_line_error(
    recorded: Recorded, session_of: Callable[..., ReplaySession], tmp_path: Path
) -> None:
    problem, kernel = recorded.problems[0], recorded.kernels[0]
    rows = [measured(problem, kernel, 1.0), measured(problem, kernel, 1.0, device="Another", run="b")]
    write_dataset(pd.DataFrame(rows, columns=recorded.records.columns), tmp_path / "two.parquet")
    other = recorded.project.problem_set("other.csv", ("forward-bf16-n1-c8-k8-i6x6-f3x3",))
    for arguments, said in (
        (("--oracle=missing.parquet",), "no records at"),
        ((f"--oracle={recorded.oracle}", f"--problem-set={other}"), "none of its problems is recorded there"),
        (
            (
                f"--oracle={recorded.oracle}",
                "--kernel-set=tiny",
                "--kernel-filter=tile_n == 128 and tile_m == 16",
            ),
            "has no kernel for",
        ),
        ((f"--oracle={tmp_path / 'two.parquet'}",), "has records of 2 devices (Another, Made-up"),
        ((f"--oracle={recorded.oracle}", "--target=cpu"), "--oracle replays records, --target cpu measures"),
        (("--target=replay", "--tile-oracle-samples=5"), "--samples is for sessions that measure"),
        (("--target=replay", "--kernel-set=full"), "no oracle is shipped with any model"),
        (("--target=replay", "--model=made_up", "--kernel-set=full"), "is shipped with the model made_up"),
    ):
        with pytest.raises(HarnessError) as raised:
            session_of(*arguments)
        assert said in str(raised.value)
        assert "\n" not in str(raised.value)


def test_of_several_devices_the_one_with_a_baseline_is_chosen_and_named(
    recorded: Recorded, session_of: Callable[..., ReplaySession]
) -> None:
    device = recorded.oracle.parent.parent
    other = device.with_name("b-other-device")
    shutil.copytree(device, other, ignore=shutil.ignore_patterns("*.json"))
    accepted = recorded.oracle.with_suffix(".json")
    baseline = Baseline(**{one.name: "x" for one in fields(Baseline) if one.type == "str"}, efficiencies={})
    save_baseline(baseline, accepted)
    try:
        session = session_of("--target=replay")
    finally:
        shutil.rmtree(other)
        accepted.unlink()
    first, _, second = session.target_line.partition("; --oracle ")
    assert first.endswith(f" (shipped with made_up ({device.name})")
    assert second.endswith("replays another device's)")
    assert Path(second.split()[0]).parent.parent == other
    assert session_of(f"--oracle={recorded.oracle}").target_line == "target: replay"


def test_each_of_two_problem_sets_replays_its_own_oracle(
    recorded: Recorded, session_of: Callable[..., ReplaySession]
) -> None:
    second = recorded.project.problem_set("second.csv", tuple(p.id for p in recorded.problems[:3]))
    oracle, _ = write_oracle(
        [recorded.oracle], model=recorded.model, problem_set=load_problem_set(str(second))
    )
    session = session_of("--target=replay", f"--problem-set={SET},second.csv")
    assert session.recording.paths == (recorded.oracle, oracle)
    assert session.options.kernel_set == "tiny"
    assert len(session.recording.records) == len(recorded.records)


# ---- exports of the model ---------------------------------------------------------------------------


@pytest.fixture
def stale(recorded: Recorded, tmp_path: Path) -> Iterator[Path]:
    """An export in models/ that was made from another model of that name."""
    train_model(records_of(recorded.problems, recorded.kernels, seed=5), tmp_path / recorded.model.name)
    folder = recorded.model.parent / "exported"
    export_model(tmp_path / recorded.model.name, recorded.kernels, folder)
    yield folder
    shutil.rmtree(folder)


def test_an_export_beside_the_model_is_compared_with_it(recorded: Recorded, stale: Path) -> None:
    choice = ModelChoice(
        Folders(recorded.model.name, "cpu", folders={recorded.problems[0].kind: recorded.model})
    )
    part = load_problem_set(str(recorded.project.folder / SET))
    said = exports_differ(choice, part)
    assert f"{stale / 'forward_bf16_2d.selector'} (forward bf16 2D) differs from made_up: " in said
    assert "of 12 picks differ, 96 scores; " in said
    assert " in the folder, " in said
    export_model(recorded.model, recorded.kernels, stale)
    assert exports_differ(choice, part) == ""
    (stale / "forward_bf16_2d.selector").write_bytes(b"")
    assert "exported could not be compared with made_up: not a whole selector" in exports_differ(choice, part)


@pytest.mark.slow
def test_a_model_does_not_pass_while_its_export_picks_otherwise(
    recorded: Recorded, accepted: Finished, stale: Path
) -> None:
    assert accepted.status == 0
    done = recorded.project.pytest(*SHIPPED, "--run-name=stale")
    assert done.status == Outcome.EXPORT_DIFFERS, done.output
    assert "export differs: " in done.output
    assert "differs from made_up" in done.output
    assert recorded.project.pytest(*SHIPPED, "--allow=export-differs", "--run-name=allowed").status == 0
    export_model(recorded.model, recorded.kernels, stale)
    assert recorded.project.pytest(*SHIPPED, "--run-name=renewed").status == 0
