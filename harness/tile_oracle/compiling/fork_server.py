"""A process that has imported a compiler written in Python, and forks for each translation unit."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tile_oracle.compiling.toolchain import compiler_environment


class Forked:
    """A process of a fork server, in a process group of its own."""

    def __init__(self, pid: int, answer: socket.socket) -> None:
        self.pid, self._answer, self._status = pid, answer, b""

    def wait_until_ended(self) -> None:
        """Waits; the process id is not used again before `reap`."""
        self._status = self._answer.recv(32)

    def reap(self) -> int:
        """The exit status as of subprocess: negative for a signal."""
        self._answer.close()
        return int(self._status or -9)  # the server was killed, and its processes with it


class ForkServer:
    """Starts the server with the first unit. Where it cannot start or fork, `start` returns None, and the
    caller runs a process of its own."""

    def __init__(self, command: Sequence[str], prepare: Callable[[Path], None], timeout_s: float) -> None:
        """command: of the server, whose last argument is a folder of its own, which `prepare` makes."""
        self._command, self._prepare, self._timeout_s = command, prepare, timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._broken = False

    def start(self, arguments: Sequence[str], work: Path, log: IO[bytes]) -> Forked | None:
        """Compiles in a fork, in a work folder; both output streams go to the log."""
        message = json.dumps([list(arguments), str(work), compiler_environment(work)]).encode()
        with self._lock:
            if self._broken:
                return None
            ours, theirs = socket.socketpair()
            try:
                if self._process is None:
                    self._launch()
                socket.send_fds(self._server, [message], [log.fileno(), theirs.fileno()])
                theirs.close()
                ours.settimeout(self._timeout_s)
                pid = int(ours.recv(32))
                ours.settimeout(None)
                return Forked(pid, ours)
            except (OSError, ValueError):
                ours.close()
                theirs.close()
                self._end()
                return None

    def close(self) -> None:
        """Ends the server, and with it all that it has forked."""
        if (process := self._process) is not None:
            process.kill()  # a `start` that waits for it holds the lock
        with self._lock:
            self._end()

    def _launch(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tile-oracle-")
        folder = Path(self._folder.name, "files")
        self._prepare(folder)
        self._server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, str(folder)],
                cwd=folder,
                env=compiler_environment(folder),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _end(self) -> None:
        self._broken = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._server.close()
            self._folder.cleanup()
            self._process = None
