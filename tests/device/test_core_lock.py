"""Locks of cores and GPUs: no two processes time on one, others wait, and a dead owner has none."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import wait_until
from tile_oracle.device.turn_lock import GpuLock

HOLDER = """
import os, sys
os.sched_setaffinity(0, {int(core) for core in sys.argv[1].split(",")})
from tile_oracle.device import turn_lock
turn_lock._TURN_S = float(sys.argv[2])
lock = turn_lock.CoreLock()
for line in sys.stdin:
    if line == "acquire\\n":
        lock.acquire()
        lock.acquire()  # holding it already
    else:
        lock.release()
        lock.release()
    print(",".join(map(str, sorted(os.sched_getaffinity(0)))), flush=True)
"""


class Holder:
    """A process that takes and releases a core on command."""

    def __init__(self, cores: set[int], folder: Path, umask: int = 0o022, turn_s: float = 3600) -> None:
        environment = {**os.environ, "TILE_ORACLE_LOCK_DIR": str(folder / "locks")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, ",".join(map(str, cores)), str(turn_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            umask=umask,
            text=True,
        )

    def ask(self, what: str) -> None:
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def cores(self) -> set[int]:
        """The cores that it may run on after the oldest command not yet answered. Blocks until it is done."""
        return {int(core) for core in self.process.stdout.readline().split(",")}

    def do(self, what: str) -> set[int]:
        self.ask(what)
        return self.cores()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[list[Holder]]:
    started: list[Holder] = []
    yield started
    for holder in started:
        holder.kill()


ALL = os.sched_getaffinity(0)


@pytest.mark.skipif(len(ALL) < 2, reason="this machine has one core only")
def test_two_processes_have_two_cores_and_are_pinned(tmp_path: Path, holders: list[Holder]) -> None:
    holders += [Holder(ALL, tmp_path), Holder(ALL, tmp_path)]
    first, second = (holder.do("acquire") for holder in holders)
    assert len(first) == len(second) == 1
    assert first != second
    assert first == {max(ALL)}
    assert holders[0].do("release") == ALL
    assert holders[0].do("acquire") == first


def test_with_one_core_the_second_waits_for_the_first(tmp_path: Path, holders: list[Holder]) -> None:
    core = {max(ALL)}
    holders += [Holder(core, tmp_path), Holder(core, tmp_path)]
    assert holders[0].do("acquire") == core
    holders[1].ask("acquire")
    wait_until_waiting(tmp_path)
    assert holders[0].do("acquire") == core  # its turn is not over
    assert not can_be_locked(tmp_path, f"core-{max(core)}.lock")
    holders[0].do("release")
    assert holders[1].cores() == core
    assert not can_be_locked(tmp_path, f"core-{max(core)}.lock")
    holders[1].do("release")
    assert can_be_locked(tmp_path, f"core-{max(core)}.lock")


def test_a_process_yields_after_its_turn(tmp_path: Path, holders: list[Holder]) -> None:
    """With more workers than cores, none may have to wait until another has measured everything."""
    core = {max(ALL)}
    holders += [Holder(core, tmp_path, turn_s=0), Holder(core, tmp_path, turn_s=0)]
    assert holders[0].do("acquire") == core
    assert holders[0].do("acquire") == core  # nobody waits
    holders[1].ask("acquire")
    wait_until_waiting(tmp_path)
    holders[0].ask("acquire")
    assert holders[1].cores() == core
    wait_until_waiting(tmp_path)
    holders[1].do("release")
    assert holders[0].cores() == core


def wait_until_waiting(folder: Path) -> None:
    """Waits until a process reports that it waits for a core."""
    wait_until(lambda: not can_be_locked(folder, "cores.waiting"))


def can_be_locked(folder: Path, name: str) -> bool:
    try:
        fd = os.open(folder / "locks" / name, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.skipif(len(ALL) < 2, reason="this machine has one core only")
def test_a_waiting_process_takes_the_first_free_core(tmp_path: Path, holders: list[Holder]) -> None:
    """Even if the other core is never released."""
    two = set(sorted(ALL)[:2])
    holders += [Holder(two, tmp_path), Holder(two, tmp_path), Holder(two, tmp_path), Holder(two, tmp_path)]
    first, second = holders[0].do("acquire"), holders[1].do("acquire")
    for waiting in holders[2:]:
        waiting.ask("acquire")
        wait_until_waiting(tmp_path)
        holders[1].do("release")
        assert waiting.cores() == second
        waiting.do("release")
        assert holders[1].do("acquire") == second
    assert first != second


def test_a_killed_holder_releases_its_core(tmp_path: Path, holders: list[Holder]) -> None:
    core = {max(ALL)}
    holders += [Holder(core, tmp_path), Holder(core, tmp_path)]
    assert holders[0].do("acquire") == core
    holders[1].ask("acquire")
    holders[0].kill()
    assert holders[1].cores() == core


def test_a_gpu_is_locked_by_its_address_in_any_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names from a driver never leave the folder."""
    monkeypatch.setenv("TILE_ORACLE_LOCK_DIR", str(tmp_path / "locks"))
    for identity in ("0000:c1:00.0", "0000:C1:00.0", "../../etc/passwd\n"):
        lock = GpuLock(identity)
        lock.acquire()
        lock.release()
    found = {path.name for path in (tmp_path / "locks").iterdir()}
    assert found == {"gpu-0000-c1-00-0.lock", "gpu-etc-passwd.lock"}
