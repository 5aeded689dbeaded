"""Changes that a kernel makes to its process are detected; those of the worker itself are not reported."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import ctypes, json, os, resource, signal, sys, threading
from tile_oracle.device.audit import Audit

memory = ctypes.create_string_buffer(bytes(range(256)) * 64)
there, _ = os.pipe()
audit = Audit(lambda: [(ctypes.addressof(memory), len(memory))], there, strict=STRICT)
audit.note_inputs()
audit.begin()
first = audit.end(thorough=True)
audit.begin()
libc, libm = ctypes.CDLL(None), ctypes.CDLL("libm.so.6")
DEED
report = audit.end(thorough=THOROUGH)
os.write(1, json.dumps([first.changes, report.changes, report.processes]).encode())
os._exit(0)
"""


def changes_after(deed: str, *, thorough: bool = False, strict: bool = True) -> tuple[list[str], int]:
    """Runs in its own process, which the change may break."""
    program = PROGRAM.replace("THOROUGH", str(thorough)).replace("STRICT", str(strict))
    ended = subprocess.run(
        [sys.executable, "-c", program.replace("DEED", textwrap.dedent(deed))],
        stdout=subprocess.PIPE,
        check=True,
    )
    first, changes, processes = json.loads(ended.stdout)
    assert first == []  # nothing has changed yet
    return changes, processes


@pytest.mark.parametrize(
    ("deed", "word"),
    [
        ("pass", ""),
        ("os.open('/', 0)", "1 descriptors leaked"),
        ("os.close(0)", "descriptors closed"),
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))", "limits"),
        ("os.chdir('/proc')", "working folder"),
        ("os.umask(0o777)", "umask"),
        ("libc.setenv(b'PATH', b'', 1)", "environment"),
        ("libc.clearenv()", "environment"),
        ("signal.signal(signal.SIGSEGV, signal.SIG_IGN)", "ignored signals"),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})", "blocked signals"),
        ("signal.alarm(100)", "timers"),
        ("libc.setlocale(6, b'C.UTF-8') if libc.setlocale(6, b'POSIX') == 0 else 0", None),
        ("libm.fesetround(0xC00)", "floating-point modes"),
        ("os.setpriority(os.PRIO_PROCESS, 0, 19)", "priority"),
        ("threading.Thread(target=threading.Event().wait, daemon=True).start()", "1 threads left behind"),
        ("memory[0] = b'x'", "inputs"),
        ("memory[len(memory) - 1] = b'x'", "inputs"),
    ],
    ids=str,
)
def test_each_change_is_named(deed: str, word: str | None) -> None:
    changes, _ = changes_after(deed)
    if word is not None:
        assert changes[:1] == ([word] if word else [])


@pytest.mark.parametrize(
    ("deed", "word"),
    [
        ("memory[8000] = b'x'", "inputs"),
        ("signal.setitimer(signal.ITIMER_PROF, 100)", "other timers"),
        ("libc.prctl(4, 0, 0, 0, 0)", "process settings"),
        ("n = os.open('/', 0); os.dup2(n, there); os.close(n)", "descriptors of its own"),
    ],
    ids=str,
)
def test_changes_that_only_the_thorough_audit_finds(deed: str, word: str) -> None:
    changes, _ = changes_after(deed, thorough=True)
    assert word in " ".join(changes)


def test_processes_that_are_left_behind_are_counted() -> None:
    changes, processes = changes_after(
        """
        for _ in range(3):
            if os.fork() == 0:
                libc.prctl(1, 9, 0, 0, 0)  # dies with its parent
                os.close(1)
                signal.pause()
        """
    )
    assert processes == 3
    assert changes[0] == "3 processes left behind"


def test_a_driver_may_open_files_and_start_threads() -> None:
    deed = "os.open('/', 0); threading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert changes_after(deed, strict=False)[0] == []
    assert changes_after("os.umask(0o777)", strict=False)[0] == ["umask"]
