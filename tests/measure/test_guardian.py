"""The guardian ends all processes of a worker, reports how it ended, and frees a stopped harness."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import tile_oracle
from tests.processes import LONGEST_S, wait_until
from tile_oracle.errors import TargetError
from tile_oracle.measure import child as child_module
from tile_oracle.measure import live_worker
from tile_oracle.measure.child import Child, what_holds
from tile_oracle.measure.containment import VARIABLE, Containment, containment_for
from tile_oracle.measure.guardian import Guardian
from tile_oracle.measure.live_worker import LiveWorker
from tile_oracle.measure.protocol import ChannelClosed

LIMITS = Containment(namespaces=False, memory_bytes=0)
SPACES = replace(LIMITS, namespaces=True)
UNSHARE = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x78000000))"
CAN_CONTAIN = subprocess.run([sys.executable, "-c", UNSHARE]).returncode == 0
"""Whether this system makes the guardian's namespaces, whatever the guardian does."""


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Child]]:
    """A Child whose process runs a given program instead of the worker. held: how it is contained."""
    started: list[Child] = []

    def make(program: str, *held: Containment) -> Child:
        with monkeypatch.context() as patch:
            patch.setattr(child_module, "worker_command", lambda fd: [sys.executable, "-c", program, str(fd)])
            started.append(Child(*held))
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
os.wait()
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
    assert re.search(r"used 0\.[2-9] GiB of memory, too much", death_of(child))


@pytest.mark.skipif(not CAN_CONTAIN, reason="no namespaces here")
def test_a_contained_worker_cannot_signal_its_harness_and_has_no_network(start: Callable[..., Child]) -> None:
    program = f"""
import os, socket
print(os.environ["TILE_ORACLE_CONTAINED"], end=" ")
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
    assert death_of(start(program, SPACES)).endswith("it printed: 1 alone Network is unreachable")
    assert {"pid", "net", "ipc"} <= what_holds(SPACES)


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


# A worker process seen from the parent: its output is drained and bounded, and its end is reported.


def test_only_the_end_of_long_output_is_kept(start: Callable[..., Child]) -> None:
    """Far more than a pipe holds, to both streams: the process must not block, nor the parent's memory
    grow."""
    child = start(
        "import sys, os\n"
        "for i in range(4000): os.write(1 + i % 2, b'0123456789' * 100)\n"
        "os.write(2, b'the\\tvery \\x1b[31mend\\n\\0')\n"
    )
    death = death_of(child)
    assert death.startswith("exited with code 0; it printed: ")
    assert death.endswith("the very [31mend")
    assert len(death) < 450
    assert death.isprintable()
    assert sum(map(len, child._tail)) < 3 * 8192


def test_output_in_small_pieces_is_kept_up_to_the_bound(start: Callable[..., Child]) -> None:
    child = start("import os\nfor i in range(30000): os.write(1, b'ab')\n")
    assert death_of(child).endswith("abab")
    assert sum(map(len, child._tail)) <= 8192 + 65536


@pytest.mark.parametrize(
    ("program", "death"),
    [
        ("pass", "exited with code 0"),
        ("raise SystemExit(3)", "exited with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGFPE)", "killed by SIGFPE"),
        ("import os; os.kill(os.getpid(), 40)", "killed by signal 40"),
        ("print('bye ' + chr(0xfc))", "exited with code 0; it printed: bye \u00fc"),
        ("\0", "exited with code 127; it printed: the worker cannot be started: embedded null byte"),
        ("import os; os.write(1, bytes([255, 10, 97]))", "exited with code 0; it printed: \ufffd a"),
        (
            "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'])",
            "exited with code 0; it printed: 1 1",
        ),
    ],
)
def test_the_end_of_a_process_is_reported(program: str, death: str, start: Callable[..., Child]) -> None:
    child = start(program)
    assert death_of(child) == death
    assert child.ended


def patient(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets it take its time to quit."""
    wait = child._process.wait
    monkeypatch.setattr(child._process, "wait", lambda timeout=None: wait(LONGEST_S))


def test_a_worker_quits_when_asked_and_closes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    before = child.pid
    patient(child, monkeypatch)
    child.quit()
    assert child._process.returncode == 0  # it was not killed
    assert not Path(f"/proc/{before}").exists()
    with pytest.raises(ChannelClosed):
        child.channel.send({"do": "quit"})
    child.kill()  # a second kill does nothing


def test_an_unresponsive_process_is_killed(
    start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start("import signal, threading; signal.signal(15, 1); print('deaf'); threading.Event().wait()")
    wait_until(lambda: child.output_tail() == "deaf")
    real, waited = child._process.wait, list[float | None]()

    def wait(timeout: float | None = None) -> int:
        waited.append(timeout)
        return real(0.1 if len(waited) == 1 else LONGEST_S)

    monkeypatch.setattr(child._process, "wait", wait)
    child.quit()
    assert waited[0] == 3
    assert child.ended
    assert "signal 9" in child._verdict_lines()


def test_no_descriptors_stay_open() -> None:
    def opened() -> set[object]:
        found = {(one.name, one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists()}
        return found | set(threading.enumerate())

    before = opened()
    for end in (Child.quit, Child.kill):
        end(Child())
    assert opened() <= before


def test_an_unkillable_process_is_left_behind(
    start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a process whose driver waits for a hung GPU."""
    child = start("import threading; threading.Event().wait()")
    process, waited = child._process, list[float | None]()

    def never(timeout: float | None = None) -> int:
        waited.append(timeout)
        raise subprocess.TimeoutExpired("worker", timeout or 0.0)

    with monkeypatch.context() as patch:
        patch.setattr(process, "wait", never)
        child.kill()
    assert waited == [child_module._DIES_WITHIN_S]
    process.wait(LONGEST_S)


def test_a_worker_leaves_no_core_file() -> None:
    """With a GPU it may be as large as the GPU's memory, and the crash is seen only after it is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("no process of this machine writes one")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        child = Child()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    child.channel.send({"do": "open", "device_module": "no_such_module", "timing": {}})
    answer = child.channel.receive(LONGEST_S)
    limits = Path(f"/proc/{child.pid}/limits").read_text()
    child.kill()
    assert answer is not None
    assert "failed" in answer
    (line,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert line.split()[4] == "0"


@pytest.mark.parametrize(
    ("looks", "killed_at"), [([True] * 9, 5), ([True] * 4 + [False] + [True] * 9, 10), ([False] * 30, None)]
)
def test_an_idle_worker_that_stays_stopped_is_killed(
    looks: list[bool], killed_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five looks in a row: one that was continued meanwhile may go on."""
    monkeypatch.setattr(live_worker, "_LOOK_S", 0.01)
    seen, killed = iter(looks), list[str]()

    class Stopped:
        channel = SimpleNamespace(receive=lambda wait_s: time.sleep(wait_s))
        kill = killed.append
        stopped = property(lambda self: next(seen))

    worker = LiveWorker(cast(Child, Stopped()))
    if killed_at is None:
        assert worker._receive_while_idle(0.1) is None
        return
    with pytest.raises(ChannelClosed):
        worker._receive_while_idle(60.0)
    assert len(list(seen)) == len(looks) - killed_at
    assert killed == ["was stopped for 0.05 s and has been killed"]
