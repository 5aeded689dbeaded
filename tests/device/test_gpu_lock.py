"""Only one process at a time times on a GPU."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tile_oracle.device import turn_lock
from tile_oracle.device.turn_lock import GpuLock

HOLDER = """\
import sys
from tile_oracle.device.turn_lock import GpuLock
lock = GpuLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.acquire()
print("again", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILE_ORACLE_LOCK_DIR", str(tmp_path / "locks"))
    return tmp_path / "locks"


def start(identity: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, identity], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_waits_until_the_holder_is_gone() -> None:
    """Killed as by the supervisor, it leaves nothing locked."""
    holder = start("0000:c1:00.0")
    mine = GpuLock("0000:C1:00.0")
    held = threading.Event()
    thread = threading.Thread(target=lambda: (mine.acquire(), held.set()), daemon=True)
    thread.start()
    assert not held.wait(0.3)
    holder.kill()
    holder.wait()
    assert held.wait(10)
    thread.join()
    mine.release()


def test_other_gpus_are_not_waited_for() -> None:
    holder = start("0000:c1:00.0")
    other = GpuLock("0000:c2:00.0")
    other.acquire()
    other.release()
    holder.kill()
    holder.wait()


def test_the_holder_yields_after_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_lock, "_TURN_S", 0.0)
    mine = GpuLock("0000:c1:00.0")
    mine.acquire()
    mine.acquire()  # nobody waits: it keeps the GPU
    other = GpuLock("0000:c1:00.0")
    got = threading.Event()

    def wait() -> None:
        other.acquire()
        other.release()
        got.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    for _ in range(500):
        mine.acquire()
        if got.wait(0.01):
            break
    gave_way = got.is_set()
    mine.release()
    thread.join(10)
    assert gave_way


def test_names_from_a_driver_never_leave_the_folder(folder: Path) -> None:
    lock = GpuLock("../../etc/passwd\n")
    lock.acquire()
    lock.release()
    assert [path.name for path in folder.iterdir()] == ["gpu-etc-passwd.lock"]


def test_without_lock_files_it_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILE_ORACLE_LOCK_DIR", str(tmp_path / "file"))
    lock = GpuLock("0000:c1:00.0")
    lock.acquire()
    lock.release()
