"""Compiler processes: started with low priority, watched, stopped with all their children."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.build.toolchain import compiler_environment

_NICENESS = 10
_LOG_CHARACTERS = 32_000
_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
"""Signals that a compiler brings upon itself, and may again with the same kernel."""
_FAULT_WORDS = ("Segmentation fault", "Aborted", "Bus error", "Illegal instruction")


@dataclass(frozen=True)
class Ended:
    """How a compiler process ended."""

    ok: bool
    log: str
    seconds: float
    """Wall time."""
    interrupted: bool = False
    """Whether a signal ended it: that says nothing of the kernel."""
    killed: bool = False
    """Whether that signal came from outside (out of memory, a person), not from a fault of the compiler."""


class CompilerProcesses:
    """Runs compilers for many threads and can stop all of them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._closed = False

    def run(self, command: Sequence[str], work: Path, timeout_s: float) -> Ended:
        """Runs one command in a work folder to its end, or until `timeout_s` seconds or `stop_all`.

        The log is what it wrote on both streams; a signal, a timeout or a missing program are added.
        """
        log = work / "compiler.log"
        begin = time.monotonic()
        try:
            with log.open("wb") as stream, self._lock:
                if self._closed:
                    return Ended(False, "the builder was closed", 0.0, interrupted=True)
                process = subprocess.Popen(
                    command,
                    cwd=work,
                    env=compiler_environment(work),
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process.pid)
        except OSError as error:
            return Ended(False, f"{command[0]} does not start: {error.strerror}", 0.0, interrupted=True)
        _be_modest(process.pid, timeout_s)
        timed_out = threading.Event()
        watch = threading.Timer(timeout_s, self._time_out, (process.pid, timed_out))
        watch.daemon = True
        watch.start()
        try:
            # Not reaped yet, so that the id cannot be another process's when it is signalled.
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            watch.cancel()
            with self._lock:
                # g++ may have been killed alone and left its children.
                self._kill(process.pid)
                self._running.discard(process.pid)
            status = process.wait()
        text = _read_shortened(log)
        if timed_out.is_set():
            text += f"\nthe compiler was stopped after {timeout_s:g} s"
        elif status < 0:
            text += f"\nthe compiler was killed by signal {-status} ({_signal_name(-status)})"
        elif status:
            text = text or f"the compiler ended with status {status} and said nothing"
        by_signal = status < 0 or " signal terminated program" in text  # g++ of its own child
        interrupted = by_signal and not timed_out.is_set()
        own_fault = -status in _FAULTS or any(f"{name} signal terminated" in text for name in _FAULT_WORDS)
        killed = interrupted and not own_fault
        return Ended(status == 0, text.strip(), time.monotonic() - begin, interrupted, killed)

    def stop_all(self) -> None:
        """Kills what runs; nothing starts afterwards."""
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


def _be_modest(pid: int, timeout_s: float) -> None:
    """Kernels being timed come first; and a compiler whose parent was killed ends by itself in the end."""
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
