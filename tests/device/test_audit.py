"""Changes that a kernel makes to its process are detected; those of the worker itself are not reported."""

# ruff: noqa: E501 - Python in one line.

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from tests.pytest_project import heed_ctrl_c

ReportAfter = Callable[..., tuple[list[str], list[str], int]]

PROGRAM = """
import ctypes, json, mmap, os, resource, signal, sys, threading, time
import numpy as np
from tile_oracle.device.audit import Audit
from tile_oracle.device.guarded_memory import GuardedBuffer, holding

stat = os.stat  # files that other processes make in /dev/shm meanwhile are not what these tests are about
os.stat = lambda path, *more, **named: stat("/" if path == "/dev/shm" else path, *more, **named)
libc, libm = ctypes.CDLL(None), ctypes.CDLL("libm.so.6")
def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
def fork(work):
    child = os.fork()
    if child == 0:
        os.close(1)
        work()
        os._exit(0)
    return child
def on_both_cores(thread):
    os.sched_setaffinity(0, range(os.cpu_count()))
    work(0.001)
def report_after(deed, thorough, strict):
    global buffer, operand, BASE, PAGE, memory, there, audit
    buffer, operand = GuardedBuffer(1000, flush=True), holding(np.zeros(5000), flush=False)
    BASE, PAGE = buffer._base, mmap.PAGESIZE
    memory = ctypes.create_string_buffer(bytes(range(256)) * 64)
    there, _ = os.pipe()
    audit = Audit(lambda: [(ctypes.addressof(memory), len(memory))], there, strict=strict)
    audit.note_inputs()
    audit.begin()
    first = audit.end(thorough=True)
    audit.begin()
    exec(deed, globals())
    report = audit.end(thorough=thorough)
    return [(*first.changes, *first.unfair), report.changes, report.unfair, report.processes]
for line in sys.stdin:
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(tells, 1)
        os.close(tells)
        os.close(told)
        os.write(1, json.dumps(report_after(*json.loads(line))).encode())
        os._exit(0)
    os.close(tells)
    os.waitpid(child, 0)
    os.set_blocking(told, False)
    try:
        print((os.read(told, 1 << 16) or b"null").decode(), flush=True)
    except BlockingIOError:
        print("null", flush=True)
    os.close(told)
"""


@pytest.fixture(scope="module")
def report_after() -> Iterator[ReportAfter]:
    """What the audit says. Each deed runs in a process of its own, which it may break: a fork."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=heed_ctrl_c,
    )

    def after(deed: str, *, thorough: bool = False, strict: bool = True) -> tuple[list[str], list[str], int]:
        process.stdin.write(json.dumps([textwrap.dedent(deed), thorough, strict]) + "\n")
        process.stdin.flush()
        first, changes, unfair, processes = json.loads(process.stdout.readline())
        assert first == []  # nothing has changed yet
        return changes, unfair, processes

    yield after
    process.communicate()


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
        ("signal.setitimer(signal.ITIMER_PROF, 100)", "timers"),
        ("libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p()))", "timers"),
        ("signal.signal(signal.SIGUSR1, lambda *_: None)", "signal handlers"),
        ("signal.signal(signal.SIGINT, lambda *_: None); libc.signal(2, memory)", "signal handlers"),
        ("libc.prctl(4, 0, 0, 0, 0)", "process settings"),
        ("libc.prctl(29, 1000000, 0, 0, 0)", "process settings"),
        ("libc.personality(0x0040000)", "process settings"),
        ("open('/proc/self/oom_score_adj', 'w').write('900')", "process settings"),
        ("n = os.open('/', 0); os.dup2(n, there); os.close(n)", "descriptors of its own"),
        ("taken = mmap.mmap(-1, 1 << 29); taken.write(bytes(1 << 29))", "0.50 GiB of memory"),
        ("space = mmap.mmap(-1, 1 << 37, flags=0x4022)", "128 GiB of address space"),
        (
            "libc.mprotect(ctypes.c_void_p(operand._base + PAGE), PAGE, 3); more = mmap.mmap(-1, 1)",
            "rights of its operands' memory",
        ),
        ("libc.mlock(ctypes.c_void_p(BASE + PAGE), PAGE)", "locked memory"),
        ("libc.prctl(15, b'x', 0, 0, 0)", "the process's name"),
        ("memory[0] = b'x'", "inputs"),
        ("memory[len(memory) - 1] = b'x'", "inputs"),
    ],
    ids=str,
)
def test_each_change_is_named(deed: str, word: str | None, report_after: ReportAfter) -> None:
    changes, unfair, _ = report_after(deed)
    assert unfair == []
    if word is not None:
        assert changes[:1] == ([word] if word else [])


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))", "changed its scheduling"),
        ("os.setpriority(os.PRIO_PROCESS, 0, 19)", "changed its scheduling"),
        ("libc.syscall(251, 1, 0, 3 << 13)", "changed its scheduling"),
        pytest.param(
            "os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})",
            "changed the cores that it may use",
            marks=pytest.mark.skipif(
                len(os.sched_getaffinity(0)) < 2, reason="this machine has one core only"
            ),
        ),
        ("libc.prctl(41, 1, 0, 0, 0)", "changed transparent huge pages"),
        ("libc.syscall(238, 1, ctypes.byref(ctypes.c_ulong(1)), 64)", "changed the policy of its memory"),
        (
            "threading.Thread(target=threading.Event().wait, daemon=True).start()",
            "left 1 threads running behind it",
        ),
        ("t = threading.Thread(target=work, args=[0.01]); t.start(); t.join()", r"computed for \d\d"),
        ("t = threading.Thread(target=on_both_cores, args=[0]); t.start(); t.join()", "computed for [1-9]"),
        ("os.waitpid(fork(lambda: work(0.01)), 0)", "ran processes"),
        (
            "libc.mprotect(ctypes.c_void_p(BASE), PAGE, 3); libc.memset(ctypes.c_void_p(BASE), 1, 1); libc.mprotect(ctypes.c_void_p(BASE), PAGE, 0)",
            "opened a guard page and used it",
        ),
        (
            "after = BASE + PAGE + buffer._inner; libc.mprotect(ctypes.c_void_p(after), PAGE, 1); ctypes.string_at(after, 1)",
            "opened a guard page and used it",
        ),
        (
            "at = ctypes.cast(libm.sin, ctypes.c_void_p).value; libc.mprotect(ctypes.c_void_p(at - at % PAGE), PAGE, 7)",
            "changed how libm.so.6 is mapped",
        ),
        ("[os.close(fd) for fd in audit._reader._files.values()]", "can no longer be audited"),
    ],
    ids=str,
)
def test_what_no_fairly_timed_kernel_does_is_said(deed: str, words: str, report_after: ReportAfter) -> None:
    _, unfair, _ = report_after(deed)
    assert unfair
    assert re.match(words, unfair[0])


def test_every_byte_of_the_inputs_is_compared_only_by_the_thorough_audit(report_after: ReportAfter) -> None:
    assert "inputs" not in report_after("memory[8000] = b'x'")[0]
    assert "inputs" in report_after("memory[8000] = b'x'", thorough=True)[0]


def test_small_leaks_of_many_kernels_add_up(report_after: ReportAfter) -> None:
    changes, _, _ = report_after(
        """
        leaked = []
        for _ in range(20):
            leaked.append(bytearray(b"x") * (20 << 20))
            report = audit.end()
            if report.changes:
                break
            harness = bytearray(b"x") * (50 << 20)  # what the harness takes between kernels does not count
            audit.begin()
        assert len(leaked) > 10, len(leaked)
        """
    )
    assert "GiB of memory" in changes[0]


def test_processes_that_are_left_behind_are_counted(report_after: ReportAfter) -> None:
    _, _, processes = report_after(
        """
        for _ in range(3):
            if os.fork() == 0:
                libc.prctl(1, 9, 0, 0, 0)  # dies with its parent
                os.close(1)
                signal.pause()
        """
    )
    assert processes == 3


def test_a_driver_may_open_files_and_start_threads(report_after: ReportAfter) -> None:
    deed = "os.open('/', 0); threading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert report_after(deed, strict=False)[:2] == ([], [])
    assert report_after("os.umask(0o777)", strict=False)[0] == ["umask"]
