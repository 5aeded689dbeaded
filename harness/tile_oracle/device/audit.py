"""Checks after every kernel what the kernel has changed in its worker process.

A changed worker is replaced, so that no later kernel is affected. The audit covers file descriptors, limits,
folders, signals, timers, threads, processes, environment, floating-point modes, priority, clock and
inputs. It runs in the kernel's own process: it catches faulty kernels, but a malicious kernel can deceive it.
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

from tile_oracle.device.clock_code import ClockCode
from tile_oracle.device.native_clock import NOW

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
"""x86-64's fenv_t has 32 bytes: first the x87 control word, last MXCSR, whose low six bits are only flags."""
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
"""File descriptors and threads that a GPU driver may open or start while kernels run."""


@dataclass(frozen=True)
class Report:
    """The changes, in words, and the number of processes that the kernel left behind."""

    changes: tuple[str, ...] = ()
    processes: int = 0


class Audit:
    """Compares the process with its state before the first kernel.

    inputs: the memory that kernels read and must not change, as (address, bytes).
    channel: the file descriptor of the worker's channel.
    strict: no descriptor or thread may be added. False for devices whose drivers open files and start
    threads at any time.

    The files of /proc stay open, because opening them would take most of the time.
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
        # Orphans are reparented to the guardian, or to the init process of the namespace.
        self._orphans = _keep_open(f"/proc/{above}/task/{above}/children")
        kept = (self._status, self._limits, self._timers, self._children, self._orphans)
        self._lasting = tuple(fd for fd in (0, 1, 2, channel, *kept) if fd >= 0)
        self._lines: tuple[int, ...] = ()
        self._before: Mapping[str, Any] = {}
        self._before_thorough: Mapping[str, Any] = {}
        self._threads = self._descriptors = 0
        self._clock = ClockCode(NOW)
        self._cores: set[int] = set()
        self._sums: dict[tuple[int, int], tuple[_Ends, int, int]] = {}

    def begin(self) -> None:
        """Must be called before a kernel runs."""
        if not self._before:
            self._choose_lines()
            self._before = before = self._state()
            self._before_thorough = self._thorough_state()
            self._threads = before.pop("threads")
        self._descriptors = _count_descriptors()
        self._cores = os.sched_getaffinity(0)

    def note_inputs(self) -> None:
        """Takes checksums of the inputs. Must be called after a problem was loaded."""
        self._sums = {}
        self._note(self._inputs())

    def _note(self, inputs: Iterable[tuple[int, int]]) -> None:
        for place in inputs:
            if place not in self._sums:
                ends = _ends(*place)
                self._sums[place] = ends, _sample(ends), _whole(*place)

    def end(self, *, thorough: bool = False) -> Report:
        """Reports what the last kernel changed. thorough: check everything and every byte of the inputs."""
        changes: list[str] = []
        processes = 0
        try:
            processes = self._count_processes(thorough=thorough)
            if processes:
                changes.append(f"{processes} processes left behind")
            changes += self._changes_of_process(thorough=thorough)
            changes += self._changes_of_inputs(thorough=thorough)
        except Exception as error:  # the kernel may have broken the audit: closed descriptors, changed root
            changes.append(f"it can no longer be audited ({type(error).__name__}: {error})")
        return Report(tuple(changes), processes)

    def _changes_of_inputs(self, *, thorough: bool) -> list[str]:
        places = self._inputs()
        for place in places:
            sums = self._sums.get(place)
            if sums is None:
                continue
            ends, sample, whole = sums
            if _sample(ends) != sample or (thorough and _whole(*place) != whole):
                return ["inputs"]
        # These inputs exist only for this kernel's timing: damage to them shows in the kernel's own result.
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
        """Number of descendants of this process that still exist, including zombies."""
        orphans = max(0, len(_text(self._orphans).split()) - 1) if self._orphans >= 0 else 0
        if not thorough:
            return orphans + len(_text(self._children).split())
        return orphans + sum(
            len(_read(f"/proc/self/task/{task}/children").split()) for task in os.listdir("/proc/self/task")
        )

    def _choose_lines(self) -> None:
        """Chooses the lines of /proc/self/status to compare; the number of threads comes last."""
        names = [line.partition(b":")[0].decode() for line in _text(self._status).split(b"\n")]
        chosen = [names.index(name) for name in _STATUS_LINES if name in names]
        self._lines = (*chosen, names.index("Threads"))

    def _state(self) -> dict[str, Any]:
        """The state that a kernel can change most easily, or that affects the next kernel's time."""
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
            "clock": self._clock.changed(),
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
    """Opens a file and returns the descriptor; -1 when this operating system does not have the file."""
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
    """Since Linux 6.2 the size of /proc/self/fd is the number of descriptors; before, count them."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1


def _signal_actions() -> list[bytes]:
    """The action of each signal. A replaced handler shows only here."""
    found = []
    action = ctypes.create_string_buffer(256)
    for number in _SIGNALS:
        _LIBC.sigaction(number, None, action)
        raw = action.raw
        # Handler, the part of the mask that the kernel fills, and flags.
        found.append(raw[:16] + raw[136:140])
    return found


def _environment() -> bytes:
    """The pointers of C's environ. They change when a variable is added or gets a new value."""
    first = _ENVIRON.value
    if not first:
        return b""
    size, at = ctypes.sizeof(ctypes.c_void_p), 0
    part = _POINTERS_AT_ONCE * size
    end = bytes(size)
    while True:
        # Whole pages are mapped, so reading up to the next boundary of a part stays in mapped memory.
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


_Ends = tuple[memoryview, ...]


def _ends(address: int, size: int) -> _Ends:
    """The first and last bytes, which a stray write hits first; all of a small buffer."""
    if size <= 2 * _SAMPLE_BYTES:
        return (_bytes_at(address, size),)
    return _bytes_at(address, _SAMPLE_BYTES), _bytes_at(address + size - _SAMPLE_BYTES, _SAMPLE_BYTES)


def _sample(ends: _Ends) -> int:
    found = 0
    for end in ends:
        found = zlib.crc32(end, found)
    return found


def _whole(address: int, size: int) -> int:
    return zlib.crc32(_bytes_at(address, size))


def _bytes_at(address: int, size: int) -> memoryview:
    """A view of the memory, not a copy."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
