"""What a kernel has changed in the worker that ran it, looked at after every kernel.

A worker that is not as it was is replaced, so that no other kernel pays: descriptors, limits, folders,
signals, timers, threads, processes, environment, floating-point modes, priority, inputs. It runs in the
kernel's own process: a kernel that works at it can deceive it. One that is merely faulty cannot.
"""

# ruff: noqa: PTH116, PTH208 - this runs after every kernel, and pathlib takes several times as long.
from __future__ import annotations

import ctypes
import locale
import os
import platform
import signal
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_MACHINE = platform.machine()
_ENVIRON = ctypes.c_void_p.in_dll(_LIBC, "environ")


def _library_of_mathematics() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:
        return None


_LIBM = _library_of_mathematics()
_FENV = ctypes.create_string_buffer(64)
_MXCSR_AT, _MXCSR_CONTROL = 28, 0xFFC0
"""In x86-64's fenv_t of 32 bytes: the x87 control word first, MXCSR last; its low six bits are flags only."""
_GET_DUMPABLE, _GET_PDEATHSIG, _GET_TIMERSLACK, _GET_TSC = 3, 2, 30, 25
_STATUS_LINES = (
    *("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapEff", "NoNewPrivs", "Seccomp"),
    *("VmLck", "TracerPid"),
)
_NAMES = {
    b"Umask": "umask",
    b"Uid": "user",
    b"Gid": "group",
    b"Groups": "groups",
    b"SigBlk": "blocked signals",
    b"SigIgn": "ignored signals",
    b"SigCgt": "signal handlers",
    b"CapEff": "capabilities",
    b"NoNewPrivs": "no_new_privs",
    b"Seccomp": "seccomp",
    b"VmLck": "locked memory",
    b"TracerPid": "tracer",
}
_SIGNALS = tuple(sorted(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})))
_SAMPLE_BYTES = 1 << 12
_POINTERS_AT_ONCE = 64
_LAZY_DESCRIPTORS, _LAZY_THREADS = 64, 64
"""What a GPU's driver may open and start while kernels run."""


@dataclass(frozen=True)
class Report:
    """What is not as it was, in words, and how many processes the kernel left behind."""

    changes: tuple[str, ...] = ()
    processes: int = 0


class Audit:
    """Compares the process with what it was before the first kernel.

    inputs: the memory that kernels read and must not change, as (address, bytes). channel: the descriptor
    that the worker talks through. strict: nothing may be added; False for devices whose drivers open files
    and start threads when they please.

    The files of /proc are kept open: to open them anew would take most of the time.
    """

    def __init__(
        self, inputs: Callable[[], Sequence[tuple[int, int]]], channel: int, *, strict: bool
    ) -> None:
        self._inputs = inputs
        self._strict = strict
        above, own = os.getppid(), threading.get_native_id()
        self._status = _keep_open("/proc/self/status")
        self._limits = _keep_open("/proc/self/limits")
        self._timers = _keep_open("/proc/self/timers")
        self._children = _keep_open(f"/proc/self/task/{own}/children")
        # What has lost its parent is the guardian's, or the first process's of the namespace.
        self._orphans = _keep_open(f"/proc/{above}/task/{above}/children")
        kept = (self._status, self._limits, self._timers, self._children, self._orphans)
        self._lasting = tuple(fd for fd in (0, 1, 2, channel, *kept) if fd >= 0)
        self._lines: tuple[int, ...] = ()
        self._before: Mapping[str, Any] = {}
        self._before_thorough: Mapping[str, Any] = {}
        self._threads = self._descriptors = 0
        self._cores: set[int] = set()
        self._sums: dict[tuple[int, int], tuple[int, int]] = {}

    def begin(self) -> None:
        """A kernel is about to run."""
        if not self._before:
            self._choose_lines()
            self._before = before = self._state()
            self._before_thorough = self._thorough_state()
            self._threads = before.pop("threads")
        self._descriptors = _count_descriptors()
        self._cores = os.sched_getaffinity(0)

    def note_inputs(self) -> None:
        """The inputs that are there now are right: called when a problem has been loaded."""
        self._sums = {}
        self._note(self._inputs())

    def _note(self, inputs: Iterable[tuple[int, int]]) -> None:
        for place in inputs:
            if place not in self._sums:
                self._sums[place] = _sample(*place), _whole(*place)

    def end(self, *, thorough: bool = False) -> Report:
        """What the kernel that has just ended changed. thorough: everything, and every byte of the inputs."""
        changes: list[str] = []
        processes = 0
        try:
            processes = self._count_processes(thorough=thorough)
            if processes:
                changes.append(f"{processes} processes left behind")
            changes += self._changes_of_process(thorough=thorough)
            changes += self._changes_of_inputs(thorough=thorough)
        except Exception as error:  # a kernel may have left nothing to look at: no descriptors, another root
            changes.append(f"it cannot be looked at any more ({type(error).__name__}: {error})")
        return Report(tuple(changes), processes)

    def _changes_of_inputs(self, *, thorough: bool) -> list[str]:
        places = self._inputs()
        for place in places:
            sums = self._sums.get(place)
            if sums is None:
                continue
            if _sample(*place) != sums[0] or (thorough and _whole(*place) != sums[1]):
                return ["inputs"]
        # Made since, for this kernel's timing: what it did to them in that time shows in its own result.
        self._note(places)
        return []

    def _changes_of_process(self, *, thorough: bool) -> list[str]:
        changes = []
        more = _count_descriptors() - self._descriptors
        if more < 0:
            changes.append("descriptors closed")
        if more > (0 if self._strict else _LAZY_DESCRIPTORS):
            changes.append(f"{more} descriptors leaked")
        if os.sched_getaffinity(0) != self._cores:
            changes.append("cores that it may use")
        now = self._state()
        threads = now.pop("threads") - self._threads
        if threads > (0 if self._strict else _LAZY_THREADS):
            changes.append(f"{threads} threads left behind")
        changes += self._differences(now, self._before)
        if thorough or changes:
            changes += self._differences(self._thorough_state(), self._before_thorough)
        return changes

    def _differences(self, now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
        of_drivers = () if self._strict else ("environment", "signal handlers")
        return [name for name, value in now.items() if value != before[name] and name not in of_drivers]

    def _count_processes(self, *, thorough: bool) -> int:
        """Processes that this one started, directly or not, and that are there still: zombies, too."""
        orphans = max(0, len(_text(self._orphans).split()) - 1) if self._orphans >= 0 else 0
        if not thorough:
            return orphans + len(_text(self._children).split())
        return orphans + sum(
            len(_read(f"/proc/self/task/{task}/children").split()) for task in os.listdir("/proc/self/task")
        )

    def _choose_lines(self) -> None:
        """Which lines of the status are compared; the number of threads comes last."""
        names = [line.partition(b":")[0].decode() for line in _text(self._status).split(b"\n")]
        chosen = [names.index(name) for name in _STATUS_LINES if name in names]
        self._lines = (*chosen, names.index("Threads"))

    def _state(self) -> dict[str, Any]:
        """What a kernel can change most easily, and what would change the next one's time."""
        lines = _text(self._status).split(b"\n")
        here, root = os.stat("."), os.stat("/")
        return {
            **{_NAMES[lines[at].partition(b":")[0]]: lines[at] for at in self._lines[:-1]},
            "threads": int(lines[self._lines[-1]].partition(b":")[2]),
            "limits": _text(self._limits),
            "timers": signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0),
            "working folder": (here.st_dev, here.st_ino),
            "root folder": (root.st_dev, root.st_ino),
            "environment": _environment(),
            "locale": locale.setlocale(locale.LC_ALL),
            "floating-point modes": _floating_point_modes(),
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
        }

    def _thorough_state(self) -> dict[str, Any]:
        others = (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
        return {
            "other timers": (*(signal.getitimer(which) for which in others), _text(self._timers)),
            "signal actions": _signal_actions(),
            "process settings": (*_process_settings(), os.sched_getscheduler(0)),
            "descriptors of its own": [_file_behind(fd) for fd in self._lasting],
        }


def _keep_open(path: str) -> int:
    """-1 for a file that this kernel of the operating system does not have."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _file_behind(fd: int) -> tuple[int, int] | None:
    try:
        there = os.fstat(fd)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _text(fd: int) -> bytes:
    return os.pread(fd, 1 << 16, 0) if fd >= 0 else b""


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def _count_descriptors() -> int:
    """The folder's size is their number since Linux 6.2; before, they are counted."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1


def _signal_actions() -> list[bytes]:
    """What was set up for each signal: another handler of a signal shows here alone."""
    found = []
    action = ctypes.create_string_buffer(256)
    for number in _SIGNALS:
        _LIBC.sigaction(number, None, action)
        raw = action.raw
        # Handler, the part of the mask that the system fills, and flags.
        found.append(raw[:16] + raw[136:140])
    return found


def _environment() -> bytes:
    """The pointers to C's variables: a new one, and a new value of an old one, change them."""
    first = _ENVIRON.value
    if not first:
        return b""
    size, at = ctypes.sizeof(ctypes.c_void_p), 0
    part = _POINTERS_AT_ONCE * size
    end = bytes(size)
    while True:
        # Whole pages are mapped: reading on to the next boundary of a part strays into none that is not.
        upto = part - (first + at) % part
        pointers = ctypes.string_at(first + at, upto)
        for place in range(0, upto, size):
            if pointers[place : place + size] == end:
                return first.to_bytes(8, "little") + ctypes.string_at(first, at + place)
        at += upto


def _floating_point_modes() -> bytes:
    if _LIBM is None:
        return b""
    _LIBM.fegetenv(_FENV)
    raw = _FENV.raw
    if _MACHINE != "x86_64":
        return raw[:4]  # FPCR of aarch64
    modes = int.from_bytes(raw[_MXCSR_AT : _MXCSR_AT + 4], "little") & _MXCSR_CONTROL
    return raw[:2] + modes.to_bytes(4, "little")


def _process_settings() -> tuple[int, ...]:
    settings = [_LIBC.prctl(_GET_DUMPABLE, 0, 0, 0, 0), _LIBC.prctl(_GET_TIMERSLACK, 0, 0, 0, 0)]
    value = ctypes.c_int()
    for what in (_GET_PDEATHSIG, _GET_TSC):
        _LIBC.prctl(what, ctypes.addressof(value), 0, 0, 0)
        settings.append(value.value)
    settings.append(_LIBC.personality(ctypes.c_ulong(0xFFFFFFFF)))
    return tuple(settings)


def _sample(address: int, size: int) -> int:
    """Checksum of the first and the last bytes: what a stray write hits first."""
    part = min(size, _SAMPLE_BYTES)
    first = zlib.crc32(_bytes_at(address, part))
    return zlib.crc32(_bytes_at(address + size - part, part), first)


def _whole(address: int, size: int) -> int:
    return zlib.crc32(_bytes_at(address, size))


def _bytes_at(address: int, size: int) -> memoryview:
    """The memory itself, not a copy."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
