"""The guardian ends all processes of a worker, reports how it ended, and frees a stopped harness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tile_oracle
from tests.processes import LONGEST_S, wait_until
from tile_oracle.errors import TargetError
from tile_oracle.measure import child as child_module
from tile_oracle.measure.child import Child, what_holds
from tile_oracle.measure.containment import VARIABLE, Containment, containment_for
from tile_oracle.measure.guardian import Guardian
from tile_oracle.measure.protocol import ChannelClosed

LIMITS = Containment(namespaces=False, memory_bytes=0)
SPACES = replace(LIMITS, namespaces=True)
CAN_CONTAIN = "pid" in what_holds(SPACES)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Child]]:
    """A Child whose process runs a given program instead of the worker."""
    started: list[Child] = []

    def make(program: str, held: Containment) -> Child:
        with monkeypatch.context() as patch:
            patch.setattr(child_module, "worker_command", lambda fd: [sys.executable, "-c", program])
            started.append(Child(held))
        return started[-1]

    yield make
    for child in started:
        child.kill()


def wait_until_nobody_has(mark: Path) -> None:
    """Wait until no process has the file open. Not by process id, which differs between namespaces."""
    wait_until(lambda: not any(_holds(folder, mark) for folder in Path("/proc").glob("[0-9]*")))


def death_of(child: Child) -> str:
    """How it ended, once it has: `Child.death` waits for ten seconds."""
    with pytest.raises(ChannelClosed):
        child.channel.receive(LONGEST_S)
    return child.death()


def _holds(process: Path, mark: Path) -> bool:
    try:
        return any(fd.readlink() == mark for fd in (process / "fd").iterdir())
    except OSError:
        return False


BURNING = """
import os, time
held = os.open({mark!r}, os.O_RDWR | os.O_CREAT)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(held, b"runs")
        while True: pass
    os._exit(0)
while not os.fstat(held).st_size: time.sleep(0.01)
{end}
"""


@pytest.mark.parametrize("namespaces", [False, True])
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 11)", "time.sleep(1000)"])
def test_a_daemon_with_a_session_of_its_own_does_not_outlive_the_worker(
    namespaces: bool, end: str, start: Callable[..., Child], tmp_path: Path
) -> None:
    if namespaces and not CAN_CONTAIN:
        pytest.skip("no namespaces here")
    mark = tmp_path / "mark"
    child = start(BURNING.format(mark=str(mark), end=end), replace(LIMITS, namespaces=namespaces))
    if "kill" in end:
        assert death_of(child) == "killed by SIGSEGV"
    else:
        wait_until(lambda: mark.exists() and mark.stat().st_size)
        child.kill()
    wait_until_nobody_has(mark)


@pytest.mark.parametrize("namespaces", [False, True])
def test_the_guardian_reports_how_a_worker_ended(namespaces: bool, start: Callable[..., Child]) -> None:
    held = replace(LIMITS, namespaces=namespaces and CAN_CONTAIN)
    assert death_of(start("raise SystemExit(3)", held)) == "exited with code 3"
    assert death_of(start("import os; os.abort()", held)) == "killed by SIGABRT"


def test_endless_processes_are_stopped(start: Callable[..., Child], tmp_path: Path) -> None:
    program = """
import os, signal
held = os.open({mark!r}, os.O_RDWR | os.O_CREAT)
for _ in range(200):
    if os.fork() == 0:
        signal.pause()
signal.pause()
"""
    mark = tmp_path / "mark"
    child = start(program.format(mark=str(mark)), replace(LIMITS, most_tasks=50))
    assert "too many" in death_of(child)
    wait_until_nobody_has(mark)


def test_memory_beyond_the_limit_ends_the_worker(start: Callable[..., Child]) -> None:
    program = """
import mmap, time
shared = mmap.mmap(-1, 300 << 20)
for _ in range(300):
    shared.write(bytes(1 << 20))
time.sleep(1000)
"""
    child = start(program, replace(LIMITS, memory_bytes=200 << 20))
    assert "GiB of memory, too much" in death_of(child)


@pytest.mark.skipif(not CAN_CONTAIN, reason="no namespaces here")
def test_a_contained_worker_cannot_signal_its_harness_and_has_no_network(start: Callable[..., Child]) -> None:
    program = f"""
import os, socket
try:
    os.kill({os.getpid()}, 0)
    print("signalled", end=" ")
except ProcessLookupError:
    print("alone", end=" ")
try:
    socket.create_connection(("127.0.0.1", 9), 1)
except OSError as error:
    print(error.strerror)
"""
    assert death_of(start(program, SPACES)).endswith("it printed: alone Network is unreachable")


STOPPED = """
import os, sys, time
from pathlib import Path
from tile_oracle.measure import child as child_module
from tile_oracle.measure.child import Child
from tile_oracle.measure.containment import Containment
child_module.worker_command = lambda fd: [
    sys.executable, "-c", f"import os, time; os.kill({os.getpid()}, 19); time.sleep(1000)"
]
child = Child(Containment(namespaces=False, memory_bytes=0, stopped_s=0.4))
try:
    child.channel.receive(300)
except Exception:
    pass
print(child.death(), child.stopped_the_harness)
child.kill()
"""


@pytest.mark.skipif(not CAN_CONTAIN, reason="this system makes no namespaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root could write the machine's settings")
def test_a_contained_worker_cannot_write_the_machines_settings(start: Callable[..., Child]) -> None:
    """It tries to open them only: where this test fails, nothing has been changed."""
    program = """
import os, sys
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
             "/sys/kernel/mm/transparent_hugepage/enabled"):
    try:
        os.close(os.open(path, os.O_WRONLY))
        sys.exit(f"{path} can be written")
    except OSError:
        pass
os._exit(7)
"""
    assert death_of(start(program, SPACES)) == "exited with code 7"


def test_a_stopped_harness_continues_and_its_worker_is_killed() -> None:
    search = str(Path(tile_oracle.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
    assert output.decode().strip() == "ended by its guardian: it kept the harness from running True"


def test_a_killed_guardian_takes_its_worker_with_it(start: Callable[..., Child], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = start(BURNING.format(mark=str(mark), end="time.sleep(1000)"), LIMITS)
    wait_until(lambda: mark.exists() and mark.stat().st_size)
    os.kill(child._process.pid, signal.SIGKILL)
    assert child.death().startswith("killed by SIGKILL")
    child.kill()
    wait_until_nobody_has(mark)


def test_the_containment_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert containment_for("cpu").namespaces
    assert not containment_for("sm_90").namespaces
    assert containment_for("sm_90").memory_bytes == 0  # a driver maps address space without memory
    monkeypatch.setenv(VARIABLE, "full")
    assert containment_for("sm_90").namespaces
    monkeypatch.setenv(VARIABLE, "limits")
    assert not containment_for("cpu").namespaces
    monkeypatch.setenv(VARIABLE, "ful")
    with pytest.raises(TargetError, match="TILE_ORACLE_CONTAINMENT=ful: must be one of auto, full, limits"):
        containment_for("cpu")


def test_a_worker_has_the_limits_of_its_containment(start: Callable[..., Child]) -> None:
    program = "import resource as r; print([r.getrlimit(one)[0] for one in (r.RLIMIT_CORE, r.RLIMIT_FSIZE)])"
    said = death_of(start(program, replace(LIMITS, file_bytes=123456)))
    assert said == "exited with code 0; it printed: [0, 123456]"


def test_a_harness_that_runs_is_not_taken_for_a_stopped_one() -> None:
    guardian = Guardian({"control": 0, "verdict": 1, "stopped_s": 0.0})
    assert not any(guardian._harness_was_stopped() for _ in range(3))
