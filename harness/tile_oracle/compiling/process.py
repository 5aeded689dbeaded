"""Compiler processes: low priority, with a timeout, killed together with their children."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EACCES, EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS, ESTALE
from pathlib import Path
from typing import IO

from tile_oracle.compiling.fork_server import Forked
from tile_oracle.compiling.toolchain import compiler_environment

_NICENESS = 10
_LOG_CHARACTERS = 32_000
_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
"""Signals of a crash in the compiler itself, which may recur with the same kernel."""
_FAULTS_OF_THE_MACHINE = (
    *map(os.strerror, (ENOMEM, EAGAIN, EMFILE, ENFILE, EIO, EROFS, EACCES, ESTALE, ENOSPC, EDQUOT)),
    "bad_alloc",
    "out of memory",
    "MemoryError",
)
"""What compilers say when the machine fails them: nothing is known about the kernel then."""
_FAULT_WORDS = ("Segmentation fault", "Aborted", "Bus error", "Illegal instruction")


@dataclass(frozen=True)
class Ended:
    """How a compiler process ended."""

    ok: bool
    log: str
    seconds: float
    """Wall time."""
    interrupted: bool = False
    """Whether a signal or a fault of the machine ended it; then nothing is known about the kernel."""
    killed: bool = False
    """Whether that came from outside (out of memory, a user) and not from a crash of the compiler."""


class CompilerProcesses:
    """Runs compilers for many threads, and can stop all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._closed = False

    def run(
        self,
        command: Sequence[str],
        work: Path,
        timeout_s: float,
        start: Callable[[Path, IO[bytes]], Forked | None] | None = None,
    ) -> Ended:
        """Runs one command in a work folder until it ends, `timeout_s` seconds pass or `stop_all` is called.

        start: of a fork server (work folder, log); where it returns None, the command is run.

        The log has the output of both streams, and a line for a signal, a timeout or a missing program.
        """
        log = work / "compiler.log"
        begin = time.monotonic()
        try:
            with log.open("wb") as stream:
                # Outside of the lock: the server may have to be started.
                process: Forked | _Own | None = None if start is None or self._closed else start(work, stream)
                with self._lock:
                    if self._closed:
                        if process is not None:
                            self._kill(process.pid)
                        return Ended(False, "the builder was closed", 0.0, interrupted=True)
                    process = process or _Own(command, work, stream)
                    self._running.add(process.pid)
        except OSError as error:
            text = f"{command[0]} does not start: {error.strerror}"
            return Ended(False, text, 0.0, interrupted=True, killed=True)
        _be_modest(process.pid, timeout_s)
        timed_out = threading.Event()
        watch = threading.Timer(timeout_s, self._time_out, (process.pid, timed_out))
        watch.daemon = True
        watch.start()
        try:
            # Not reaped yet, so that the process id cannot be reused before the kill below.
            process.wait_until_ended()
        finally:
            watch.cancel()
            with self._lock:
                # If only g++ itself was killed, its children still run.
                self._kill(process.pid)
                self._running.discard(process.pid)
            status = process.reap()
        text = _read_shortened(log)
        if timed_out.is_set():
            text += f"\nthe compiler was stopped after {timeout_s:g} s"
        elif status < 0:
            text += f"\nthe compiler was killed by signal {-status} ({_signal_name(-status)})"
        elif status:
            text = text or f"the compiler ended with status {status} and no output"
        by_signal = status < 0 or " signal terminated program" in text  # the latter from g++ about its child
        failed = status != 0 and any(words in text for words in _FAULTS_OF_THE_MACHINE)
        interrupted = (by_signal or failed) and not timed_out.is_set()
        own_fault = -status in _FAULTS or any(f"{name} signal terminated" in text for name in _FAULT_WORDS)
        killed = interrupted and not own_fault
        return Ended(status == 0, text.strip(), time.monotonic() - begin, interrupted, killed)

    def stop_all(self) -> None:
        """Kills all running compilers; nothing starts afterwards."""
        with self._lock:
            self._closed = True
            for pid in self._running:
                self._kill(pid)

    def _time_out(self, pid: int, timed_out: threading.Event) -> None:
        with self._lock:
            if pid in self._running:
                timed_out.set()
                self._kill(pid)

    @staticmethod
    def _kill(pid: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


class _Own:
    """A process of a command, in a session of its own."""

    def __init__(self, command: Sequence[str], work: Path, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=work,
            env=compiler_environment(work),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def wait_until_ended(self) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def reap(self) -> int:
        return self._process.wait()


def _be_modest(pid: int, timeout_s: float) -> None:
    """Lowers the priority, so that timed kernels come first, and limits the CPU time, so that an orphaned
    compiler ends by itself."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, _NICENESS)
    with suppress(OSError, ValueError):
        seconds = int(timeout_s) + 1
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _read_shortened(path: Path) -> str:
    half = _LOG_CHARACTERS // 2
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= _LOG_CHARACTERS:
            return file.read().decode("utf-8", "replace")
        head = file.read(half)
        file.seek(-half, os.SEEK_END)
        tail = file.read()
    left_out = f"\n… {size - 2 * half} bytes left out …\n"
    return head.decode("utf-8", "replace") + left_out + tail.decode("utf-8", "replace")
