"""The parent's handle on one worker process: start it, talk to it, kill it, report how it ended."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

from tile_oracle.measure import guardian
from tile_oracle.measure.commands import Quit
from tile_oracle.measure.containment import Containment
from tile_oracle.measure.protocol import ChannelClosed, WatchedChannel
from tile_oracle.process.children import child_environment, is_stopped

_TAIL_BYTES = 8192
_TAIL_SHOWN = 400
_DIES_WITHIN_S = 60.0
"""Time limit after SIGKILL. A driver may need long to remove a hanging kernel from its GPU; some never do."""
_MARK = "TILE_ORACLE_WORKER"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def worker_command(fd: int) -> list[str]:
    """Returns the command line of the worker, which the guardian starts."""
    return [sys.executable, "-P", "-m", "tile_oracle.device.worker", str(fd), str(fd)]


class Child:
    """A running worker and its guardian. It is spawned, never forked, so that no device state leaks into it.

    containment: how the worker is contained; by default by limits only.
    """

    def __init__(self, containment: Containment | None = None) -> None:
        held = containment or Containment(namespaces=False, memory_bytes=0)
        ours, theirs = socket.socketpair()
        to_guardian, self._control = os.pipe()
        self._verdict, from_guardian = os.pipe()
        command = worker_command(theirs.fileno())
        guarded = {
            **held.settings(),
            "control": to_guardian,
            "verdict": from_guardian,
            "keep": [theirs.fileno()],
            "command": command,
        }
        self._mark = secrets.token_hex(8)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, json.dumps(guarded)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(), to_guardian, from_guardian),
                env=child_environment(**_ONE_THREAD, **{_MARK: self._mark}),
                start_new_session=True,  # Ctrl-C must reach only pytest, which then ends this process cleanly
            )
        except OSError:
            ours.close()
            os.close(self._control)
            os.close(self._verdict)
            raise
        finally:
            theirs.close()
            os.close(to_guardian)
            os.close(from_guardian)
        self.channel = WatchedChannel(ours)
        self._tail: deque[bytes] = deque()
        self._drain = threading.Thread(target=self._drain_output, daemon=True)
        self._drain.start()
        self._killed = False
        self._killed_because = ""
        self._said: list[str] | None = None

    @property
    def pid(self) -> int:
        """The worker's process id; the guardian's until the worker's first message."""
        return self.channel.sender or self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped the process. False for a process under a debugger."""
        return is_stopped(self.pid)

    @property
    def contained(self) -> frozenset[str]:
        """The worker's namespaces: user, pid, net, ipc, proc. Known once it has ended."""
        first = next(iter(self._verdict_lines()), "")
        return frozenset(first.split()[1:])

    @property
    def stopped_the_harness(self) -> bool:
        """Whether it was killed because a kernel stopped the harness. Known once it has ended."""
        return any(line == "stopped" for line in self._verdict_lines())

    def _verdict_lines(self) -> list[str]:
        """Returns the guardian's messages."""
        if self._said is None:
            if not self.ended:
                return []
            with suppress(OSError):
                os.set_blocking(self._verdict, False)
                self._said = os.read(self._verdict, 1 << 16).decode(errors="replace").splitlines()
        return self._said or []

    def _drain_output(self) -> None:
        """Keeps the end of the kernels' output, which may be endless."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        kept = 0
        while True:
            try:
                data = os.read(fd, 65536)
            except OSError:
                return
            if not data:
                return
            self._tail.append(data[-_TAIL_BYTES:])
            kept += len(self._tail[-1])
            while kept - len(self._tail[0]) >= _TAIL_BYTES:
                kept -= len(self._tail.popleft())

    def output_tail(self) -> str:
        """Returns the last few hundred characters of output, on one line."""
        text = b"".join(list(self._tail)).decode(errors="replace")
        printable = "".join(c if c.isprintable() else " " for c in text)
        return " ".join(printable.split())[-_TAIL_SHOWN:]

    def death(self) -> str:
        """Returns how the process ended: signal or exit code, and the last output."""
        if self._killed_because:
            return self.with_output(self._killed_because)
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.with_output("closed its channel but kept running")
        self._drain.join(timeout=2)
        ending = next((line for line in self._verdict_lines() if not line.startswith("contained")), "")
        return self.with_output(_how(ending, code))

    def with_output(self, what: str) -> str:
        """`what`, and the last output of the process."""
        tail = self.output_tail()
        return f"{what}; it printed: {tail}" if tail else what

    def quit(self) -> None:
        """Asks the worker to quit, between two kernels; kills it if it does not."""
        with suppress(ChannelClosed):
            self.channel.send(Quit())
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def interrupt(self) -> None:
        """Lets the guardian kill the process. `kill` follows, in the thread that owns it."""
        with suppress(OSError):
            # The guardian kills all of it. A kernel may have stopped the guardian, hence SIGCONT.
            os.write(self._control, b"k")
            os.kill(self._process.pid, signal.SIGCONT)

    def kill(self, because: str = "") -> None:
        """Kills the process and all its descendants. Safe to call twice. because: the result of `death`.

        A process that is stuck in its driver and survives SIGKILL is left behind.
        """
        if not self._killed:
            self._killed, self._killed_because = True, because
            self.interrupt()
            try:
                self._process.wait(timeout=_DIES_WITHIN_S)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        self._verdict_lines()
        self.channel.close()
        for fd in {self._control, self._verdict} - {-1}:
            os.close(fd)
        self._control = self._verdict = -1
        if self._process.returncode is not None and self._process.returncode < 0:
            _sweep(self._mark)  # the guardian was killed before it could clean up
        self._close_output()

    def _close_output(self) -> None:
        self._drain.join(timeout=2)
        if self._process.stdout is not None:
            self._process.stdout.close()


def what_holds(containment: Containment) -> frozenset[str]:
    """Returns the namespaces that a guardian can make here: user, pid, net, ipc, proc. Starts a worker to
    find out."""
    child = Child(containment)
    child.quit()
    return child.contained


def _how(ending: str, code: int) -> str:
    """Describes the end of the worker as reported by the guardian, or of a guardian that was itself
    killed."""
    what, _, number = ending.partition(" ")
    if what == "exit":
        return f"exited with code {number}"
    if what == "signal":
        return _killed_by(int(number))
    if what == "memory":
        return f"ended by the harness: its processes used {int(number) / 2**30:.1f} GiB of memory, too much"
    if what == "processes":
        return f"ended by the harness: it had {int(number):,} processes and threads, too many"
    if what == "stopped":
        return "ended by its guardian: it kept the harness from running"
    return _killed_by(-code) if code < 0 else f"exited with code {code}"


def _killed_by(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _sweep(mark: str) -> None:
    """Kills the leftover processes of a worker without guardian, found by the mark in their environment."""
    wanted = f"{_MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
