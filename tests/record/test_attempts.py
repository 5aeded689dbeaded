"""A kernel that kills sessions is detected: slots of dead sessions are read, and two deaths are enough."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tile_oracle.record import attempts as attempts_module
from tile_oracle.record.attempts import Attempts, AttemptSlot, forget_settled


def die_at(folder: Path, writer: str, problem: str, kernel: str, *, careful: bool = False) -> None:
    """A session that died while it ran the kernel: its lock is gone, its slot stays."""
    session = Attempts(folder, writer)
    session.note_problem(problem)
    session.sync()
    assert session.path is not None
    slot = AttemptSlot(session.path)
    slot.load(problem, careful=careful or session.careful(problem))
    slot.begin("another")
    slot.end()
    if kernel:
        slot.begin(kernel)
    os.close(slot._fd)
    os.close(session._fd)


def test_two_deaths_at_a_kernel_blame_only_that_kernel(tmp_path: Path) -> None:
    die_at(tmp_path, "1", "p", "k")
    second = Attempts(tmp_path, "2")
    assert second.careful("p")
    assert not second.careful("q")
    assert not second.blamed("p", "k")
    second.close()
    die_at(tmp_path, "3", "p", "k")
    third = Attempts(tmp_path, "4")
    assert third.blamed("p", "k")
    assert not third.blamed("p", "another")
    assert not third.blamed("q", "k")
    third.finished("p", "k")
    assert not third.careful("p")
    third.close()
    assert list(tmp_path.iterdir()) == []


def test_deaths_at_different_kernels_blame_none(tmp_path: Path) -> None:
    die_at(tmp_path, "1", "p", "a")
    die_at(tmp_path, "2", "p", "b")
    session = Attempts(tmp_path, "3")
    assert not session.blamed("p", "a")
    assert not session.blamed("p", "b")
    session.finished("p")
    assert not session.careful("p")


def test_a_death_between_two_kernels_blames_none(tmp_path: Path) -> None:
    die_at(tmp_path, "1", "p", "")
    session = Attempts(tmp_path, "2")
    assert not session.careful("p")
    session.close()
    assert list(tmp_path.iterdir()) == []


def test_a_live_session_is_not_a_death(tmp_path: Path) -> None:
    living = Attempts(tmp_path, "1")
    living.note_problem("p")
    slot = AttemptSlot(living.path)
    slot.load("p", careful=False)
    slot.begin("k")
    assert not Attempts(tmp_path, "2").careful("p")
    assert living.path.exists()


def test_after_a_machine_crash_the_problem_is_known_then_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["first", "second", "third"])
    boot = next(names)
    monkeypatch.setattr(attempts_module, "boot", lambda: boot)
    die_at(tmp_path, "1", "p", "k")  # what is on disk may be older than the last write
    boot = next(names)
    session = Attempts(tmp_path, "2")
    assert session.careful("p")
    assert not session.blamed("p", "k")
    session.close()
    die_at(tmp_path, "3", "p", "k", careful=True)
    boot = next(names)
    session = Attempts(tmp_path, "4")
    assert session.blamed("p", "k")
    assert not session.blamed("p", "another")


@pytest.mark.parametrize("damage", [b"", b"r", b"r00000000 []", b"\xff" * 2048, b"r" + b"0" * 4000])
def test_a_damaged_slot_blames_no_kernel(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / ".attempt-x").write_bytes(damage)
    session = Attempts(tmp_path, "1")
    assert not session.blamed("", "")
    session.close()


@pytest.mark.parametrize("bit", range(0, 500, 7))
def test_a_flipped_bit_blames_no_other_kernel(bit: int, tmp_path: Path) -> None:
    die_at(tmp_path, "1", "p", "k")
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    session = Attempts(tmp_path, "2")
    assert {death.kernel for death in session._deaths} <= {"k"}


@pytest.mark.parametrize("call", ["open", "pwrite", "fdatasync"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOSPC])
def test_a_call_that_fails_costs_the_note_and_nothing_else(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(attempts_module.os, call, fails)
        session = Attempts(tmp_path, "1")
        session.note_problem("p")
        session.sync()
        slot = AttemptSlot(session.path or tmp_path / "none")
        slot.load("p", careful=True)
        slot.begin("k")
        slot.end()
        assert not session.careful("p")
        session.finished("p")
        assert session._fd == -1 or call != "open"
    session.close()
    os.fstat(1)  # not closed in the place of a file that was never opened
    assert list(tmp_path.iterdir()) == []


def test_notes_that_nobody_needs_are_removed(tmp_path: Path) -> None:
    die_at(tmp_path, "recorded", "p", "k")
    die_at(tmp_path, "unrecorded", "p", "other")
    die_at(tmp_path, "between", "p", "")
    living = Attempts(tmp_path, "living")
    forget_settled(tmp_path, lambda: {("p", "k"), ("q", "other")})
    assert {path.name for path in tmp_path.iterdir()} == {".attempt-unrecorded", ".attempt-living"}
    living.close()


def test_the_records_are_not_read_when_nobody_died(tmp_path: Path) -> None:
    def read() -> set[tuple[str, str]]:
        raise AssertionError

    die_at(tmp_path, "between", "p", "")
    forget_settled(tmp_path, read)
    assert list(tmp_path.iterdir()) == []
