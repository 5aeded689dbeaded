"""`tile-oracle night`: what it refuses, and what its folder keeps. tests/night runs whole nights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytest_project import TWO_KERNELS, Project
from tests.samples import slow
from tile_oracle.cli import main
from tile_oracle.errors import RecordError
from tile_oracle.night.nights import (
    Entry,
    NightState,
    Unfinished,
    add_to_history,
    history_lines,
    read_history,
)
from tile_oracle.session.outcome import Outcome


@pytest.fixture
def state(tmp_path: Path) -> NightState:
    return NightState(tmp_path / "state", tmp_path / "state" / "kept")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "auto"], "name the gate's device"),
        (["--target", ""], "name the gate's device"),
        (["--target", "replay"], "name the gate's device"),
        (["--target", "cpu", "--keep", "0"], "at least the night itself stays"),
        (["--target", "cpu", "--", "--target=cpu"], "--target behind -- is the night's own"),
        (["--target", "cpu", "--", "--oracle", "x"], "--oracle behind -- is the night's own"),
        (["--target", "cpu", "--", "--tile-oracle-resume"], "resume behind -- is the night's own"),
    ],
)
def test_refused_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    state = tmp_path / "state"
    assert main(["night", "--problem-set", "forward_smoke", "--state", str(state), *words]) == 2
    assert message in capsys.readouterr().err
    assert not state.exists()


@pytest.mark.parametrize(
    ("from_outside", "options"),
    [
        ("--benchmark-only", ()),
        *slow(("--collect-only", ()), ("", ("--collect-only",)), ("", ("-k", "none"))),
    ],
)
def test_a_night_that_measured_nothing_has_not_passed(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    state: NightState,
    from_outside: str,
    options: tuple[str, ...],
) -> None:
    monkeypatch.chdir(project.folder)
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTEST_ADDOPTS", from_outside)
    # pytest-benchmark switches itself off beside pytest-xdist, which may be what runs this test.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    asked = ["--problem-set", "small.csv", "--target", "cpu", "--state", str(state.folder)]
    assert main(["night", *asked, "--", *TWO_KERNELS, *options]) == Outcome.NOTHING_MEASURED
    (entry,) = read_history(state.history)
    assert (entry.outcome, entry.status) == ("nothing measured", "16")


def test_two_nights_do_not_share_a_folder(state: NightState) -> None:
    with state.locked(), pytest.raises(RecordError, match="another night uses"), state.locked():
        pass
    with state.locked():
        pass


def test_the_night_that_is_not_complete_is_remembered(state: NightState) -> None:
    assert state.unfinished() is None
    first, second = state.new_night(), state.new_night()
    assert first != second
    state.set_unfinished(Unfinished(first, ended=False))
    assert state.unfinished() == Unfinished(first, ended=False)
    for damaged in ("", "[]", "{", '{"night": "../..", "ended": true}', '{"night": "20260101T000000Z"}'):
        (state.folder / "unfinished.json").write_text(damaged)
        assert state.unfinished() is None
    state.set_unfinished(None)
    assert not (state.folder / "unfinished.json").exists()


def test_old_nights_go_and_the_current_one_stays(state: NightState) -> None:
    names = [f"2026010{day}T000000Z" for day in range(1, 6)]
    for name in names:
        state.runs_of(name).mkdir(parents=True)
    (state.folder / "nights" / "mine").mkdir()
    assert state.forget_old(2, current=names[0]) == names[1:3]
    assert {path.name for path in (state.folder / "nights").iterdir()} == {names[0], *names[3:], "mine"}


def test_a_history_grows_and_is_shown_newest_first(state: NightState) -> None:
    one = Entry("20260101T000000Z", "2026-01-01T01:00:00Z", "0", "passed", "=cmd()", "4", "3", "98.10")
    two = Entry("20260102T000000Z", "2026-01-02T01:00:00Z", "", "killed")
    add_to_history(state.history, [one])
    add_to_history(state.history, [two])
    assert [entry.outcome for entry in read_history(state.history)] == ["passed", "killed"]
    assert "'=cmd()" in state.history.read_text()
    lines = history_lines([one, two])
    assert lines[1].startswith("20260102T000000Z  killed")
    assert "3/4" in lines[2]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\xff"])
def test_a_file_that_is_not_a_history_is_left_alone(state: NightState, text: str) -> None:
    state.history.parent.mkdir(parents=True)
    state.history.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError, match="remove it to begin a new"):
        add_to_history(state.history, [])
    assert state.history.read_bytes() == text.encode("latin-1")
