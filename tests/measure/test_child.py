"""A worker process seen from the parent: its output is drained and bounded, and its end is reported."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.processes import LONGEST_S, wait_until
from tile_oracle.measure import child as child_module
from tile_oracle.measure import live_worker
from tile_oracle.measure.child import Child
from tile_oracle.measure.live_worker import LiveWorker
from tile_oracle.measure.protocol import ChannelClosed


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Child]]:
    """A Child whose process runs a given program instead of the worker."""
    started: list[Child] = []

    def make(program: str) -> Child:
        def command(fd: int) -> list[str]:
            return [sys.executable, "-c", program, str(fd)]

        with monkeypatch.context() as patch:
            patch.setattr(child_module, "worker_command", command)
            started.append(Child())
        return started[-1]

    yield make
    for child in started:
        child.kill()


def death_of(child: Child) -> str:
    """How it ended, once it has: `Child.death` waits for ten seconds."""
    with pytest.raises(ChannelClosed):
        child.channel.receive(LONGEST_S)
    return child.death()


def test_only_the_end_of_long_output_is_kept(start: Callable[[str], Child]) -> None:
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


def test_output_in_small_pieces_is_kept_up_to_the_bound(start: Callable[[str], Child]) -> None:
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
        ("import os; os.write(1, bytes([255, 10, 97]))", "exited with code 0; it printed: \ufffd a"),
        (
            "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'])",
            "exited with code 0; it printed: 1 1",
        ),
    ],
)
def test_the_end_of_a_process_is_reported(program: str, death: str, start: Callable[[str], Child]) -> None:
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
    start: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
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
    start: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
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
