"""One worker process, seen from the parent: start it, talk to it, kill it, say how it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

import harness
from harness.measure.protocol import Channel, ChannelClosed

_TAIL_BYTES = 8192
_TAIL_SHOWN = 400
_DIES_WITHIN_S = 60.0
"""After SIGKILL. A driver may take its time to get a hanging kernel off its GPU; some never do."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Child:
    """A running worker. Spawned anew, never forked: no device state can leak into it."""

    def __init__(self, journals: Path | None) -> None:
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        command = [sys.executable, "-P", "-m", "harness.measure.worker", str(to_child), str(from_child)]
        if journals is not None:
            command.append(str(journals))
        package_parent = str(Path(harness.__file__).resolve().parent.parent)
        search = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(to_child, from_child),
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": search},
            start_new_session=True,  # Ctrl-C reaches pytest, which then ends this process in order
        )
        os.close(to_child)
        os.close(from_child)
        self.channel = Channel(to_parent, from_parent)
        self._tail: deque[bytes] = deque()
        self._drain = threading.Thread(target=self._drain_output, daemon=True)
        self._drain.start()
        self._killed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process is dead already."""
        return self._process.poll() is not None

    def _drain_output(self) -> None:
        """Keep the end of what the kernels print; they may print for ever."""
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
        """The last few hundred characters that the process printed, on one line."""
        text = b"".join(list(self._tail)).decode(errors="replace")
        printable = "".join(c if c.isprintable() else " " for c in text)
        return " ".join(printable.split())[-_TAIL_SHOWN:]

    def death(self) -> str:
        """How the process ended: signal or exit code, and the last that it printed."""
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.with_output("closed its channel but went on running")
        self._drain.join(timeout=2)
        return self.with_output(_how(code))

    def with_output(self, what: str) -> str:
        """What happened, and the last that the process printed."""
        tail = self.output_tail()
        return f"{what}; it printed: {tail}" if tail else what

    def quit(self) -> None:
        """Ask it to end, between two kernels; kill it when it does not."""
        with suppress(ChannelClosed):
            self.channel.send({"do": "quit"})
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.kill()
        self.channel.close()
        self._close_output()

    def kill(self) -> None:
        """End the process and all that it started. Safe to call twice.

        One that not even SIGKILL ends, being stuck in its driver, is left behind.
        """
        if not self._killed:
            self._killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_DIES_WITHIN_S)
        self.channel.close()
        self._close_output()

    def _close_output(self) -> None:
        self._drain.join(timeout=2)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
