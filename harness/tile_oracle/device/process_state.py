"""The state of the worker's process that a kernel can change, as a table of what is compared.

Each row of the table reads one part of the state; `tile_oracle.device.audit` compares it before and after
every kernel. To audit something else, add a row.

All files of /proc stay open: opening them takes most of the time, and a kernel may have used up the
descriptors.
"""

# ruff: noqa: PTH116, PTH208 - this runs after every kernel, and pathlib takes several times as long.
from __future__ import annotations

import ctypes
import locale
import os
import platform
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tile_oracle.device.guarded_memory import guarded_bytes, touched_guards
from tile_oracle.device.native_clock import NOW, ClockCode
from tile_oracle.files.passing_errors import unless_passing
from tile_oracle.measure.guardian import CONTAINED

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
_SCHED_GETATTR, _IOPRIO_GET, _GET_MEMPOLICY = {
    "x86_64": (315, 252, 239),
    "aarch64": (275, 31, 236),
}.get(_MACHINE, (0, 0, 0))
"""Numbers of system calls that the C library does not export."""
_ATTRIBUTES = ctypes.create_string_buffer(56)
"""Linux's struct sched_attr: policy, flags, nice value, priority, deadlines, and limits of the frequency."""
_ACTION = ctypes.create_string_buffer(256)
_SETTINGS_RETURNED, _SETTINGS_STORED = (3, 7, 30, 66, 68), (2, 25, 37)
"""Numbers of prctl that return a setting (core dumps, capabilities kept, timer slack, memory that may become
executable, memory that is merged), and that store it at an address (signal of the parent's death, the
time-stamp counter, orphans adopted)."""
_STORED = ctypes.c_int()
_STORED_AT = ctypes.addressof(_STORED)
_PERSONA = ctypes.c_ulong(0xFFFFFFFF)
"""Asks personality() for the present value."""
_POINTERS_AT_ONCE = 64
_OF_DRIVERS = 64
"""File descriptors and threads that a GPU driver may open or start while kernels run."""
_MOST_OTHER_NS = 20_000
"""Processor time of other threads of the process during one kernel's checks and timed runs. Starting a thread
takes more."""
_ENDING_LOOKS, _ENDING_S = 20, 0.001
_MOST_GROWN_BYTES, _MOST_SPACE_BYTES, _HARNESS_SHARE = 256 << 20, 64 << 30, 3
"""Memory, and address space without memory, by which all kernels of a worker may let it grow. The harness's
own arrays for a problem are a few times as large as the operands."""

_VOLATILE = frozenset(
    b"State Ngid FDSize VmPeak VmSize VmHWM VmRSS RssAnon RssFile RssShmem VmData VmStk VmLib VmPTE VmSwap "
    b"Threads SigQ SigCgt Cpus_allowed Cpus_allowed_list Mems_allowed_list voluntary_ctxt_switches "
    b"nonvoluntary_ctxt_switches".split()
)
"""Lines of /proc/self/status that change by themselves, or that other rows compare."""
_CHANGED_BY_DRIVERS = {b"VmPin", b"HugetlbPages"}
_MEMORY_LINES = (b"RssAnon", b"RssShmem", b"VmSwap", b"HugetlbPages")
_SHAPE_LINES = (b"VmSize", b"VmData", b"VmStk", b"VmLib")
"""They change when a private mapping is made, removed or gets other rights."""
_OF_TIME = {b"THP_enabled", b"Speculation_Store_Bypass", b"SpeculationIndirectBranch"}
_WORDS = {
    b"Umask": "umask", b"Uid": "user", b"Gid": "group", b"Groups": "groups", b"SigPnd": "pending signals",
    b"ShdPnd": "pending signals", b"SigBlk": "blocked signals", b"SigIgn": "ignored signals",
    b"CapEff": "capabilities", b"NoNewPrivs": "no_new_privs", b"Seccomp": "seccomp",
    b"VmLck": "locked memory", b"TracerPid": "tracer", b"THP_enabled": "transparent huge pages",
    b"Name": "the process's name",
}  # fmt: skip


class Reader:
    """Reads the state. Its descriptors stay open.

    channel: the file descriptor of the worker's channel. alone: whether no driver works in this process.
    """

    def __init__(self, channel: int, *, alone: bool) -> None:
        above, own = os.getppid(), threading.get_native_id()
        self._files = {
            name: _keep_open(f"/proc/{path}")
            for name, path in (
                *((name, f"self/{name}") for name in ("status", "limits", "timers", "cgroup", "maps")),
                *((name, f"self/{name}") for name in ("oom_score_adj", "coredump_filter")),
                ("children", f"self/task/{own}/children"),
                # Orphans are reparented to the guardian, or to the init process of the namespace.
                ("orphans", f"{above}/task/{above}/children"),
                ("loadavg", "loadavg"),
                ("shared", "sysvipc/shm"),
            )
        }
        self._lasting = (0, 1, 2, channel)
        self._is_alone = alone
        self._contained = bool(os.environ.get(CONTAINED))
        self.clock = ClockCode(NOW)
        names = [line.partition(b":")[0] for line in self.text("status").split(b"\n")]
        self._at = {name: at for at, name in enumerate(names)}
        changing = _VOLATILE if alone else _VOLATILE | _CHANGED_BY_DRIVERS
        known = [(name, at) for name, at in self._at.items() if name and name not in changing]
        self._steady = [at for name, at in known if name not in _OF_TIME]
        self._of_time = [at for name, at in known if name in _OF_TIME]
        self._threads = tuple(map(int, os.listdir("/proc/self/task"))) if alone else (own,)
        self._lines: list[bytes] = []
        self._shape_lines = [self._at[name] for name in _SHAPE_LINES if name in self._at]
        self._memory_lines = [self._at[name] for name in _MEMORY_LINES if name in self._at]
        self._maps: frozenset[bytes] = frozenset()
        self._shape: list[bytes] = []

    def look(self) -> None:
        """Reads /proc/self/status, from which several rows take their values."""
        for _ in range(_ENDING_LOOKS):
            self._lines = self.text("status").split(b"\n")
            if not self._is_alone or self.thread_count() <= len(self._threads):
                return
            time.sleep(_ENDING_S)  # a joined thread counts for a moment longer

    def text(self, name: str) -> bytes:
        """Returns the present content of a file."""
        fd = self._files[name]
        return os.pread(fd, 1 << 16, 0) if fd >= 0 else b""

    def processes(self, *, thorough: bool = False) -> int:
        """Returns the number of descendants of this process that still exist, including zombies. thorough:
        also the children of its other threads."""
        orphans = max(0, len(self.text("orphans").split()) - 1)
        if not thorough:
            return orphans + len(self.text("children").split())
        return orphans + sum(
            len(_read(f"/proc/self/task/{task}/children").split()) for task in os.listdir("/proc/self/task")
        )

    # ---- what the rows read ---------------------------------------------------------------------------

    def status(self) -> list[bytes]:
        return [self._lines[at] for at in self._steady]

    def status_of_time(self) -> list[bytes]:
        return [self._lines[at] for at in self._of_time]

    def timers(self) -> tuple[object, ...]:
        every = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
        return (*(signal.getitimer(which) != (0.0, 0.0) for which in every), self.text("timers"))

    def thread_count(self) -> int:
        return self._kilobytes(b"Threads")

    def scheduling(self) -> dict[int, tuple[object, ...]]:
        """Thread -> its cores, and its scheduling. Threads that kernels have started are only counted."""
        return {thread: (os.sched_getaffinity(thread), *_scheduling(thread)) for thread in self._threads}

    def descriptors(self) -> int:
        """Since Linux 6.2 the size of /proc/self/fd is the number of descriptors; before, count them."""
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1

    def own_descriptors(self) -> list[tuple[int, int] | None]:
        return [_file_behind(fd) for fd in self._lasting]

    def caught_signals(self) -> list[bytes]:
        """Returns the action of each signal that is caught. A replaced handler shows only here."""
        caught = int(self._lines[self._at[b"SigCgt"]].partition(b":")[2], 16)
        found = [caught.to_bytes(8, "little")]
        while caught:
            number = caught.bit_length()
            caught ^= 1 << number - 1
            if _LIBC.sigaction(number, None, _ACTION) == 0:
                raw = _ACTION.raw
                # Handler, the part of the mask that the kernel fills, and flags.
                found.append(raw[:16] + raw[136:140])
        return found

    def settings(self) -> tuple[object, ...]:
        found = [_LIBC.prctl(what, 0, 0, 0, 0) for what in _SETTINGS_RETURNED]
        for what in _SETTINGS_STORED:
            _LIBC.prctl(what, _STORED_AT, 0, 0, 0)
            found.append(_STORED.value)
        persona = _LIBC.personality(_PERSONA)
        return *found, persona, self.text("oom_score_adj"), self.text("coredump_filter")

    def memory_policy(self) -> tuple[int, int]:
        mode = ctypes.c_int()
        failed = _LIBC.syscall(_GET_MEMPOLICY, ctypes.byref(mode), None, 0, None, 0) if _GET_MEMPOLICY else -1
        return failed, mode.value

    def other_threads_ns(self) -> tuple[int, int]:
        """Processor time of this process's other threads, ended ones included: at most, and at least.

        They differ where an interrupt between the readings takes time.
        """
        first, all_, last = time.thread_time_ns(), time.process_time_ns(), time.thread_time_ns()
        return all_ - first, all_ - last

    def ended_children(self) -> tuple[float, int]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime, used.ru_minflt

    def last_task(self) -> int:
        """Returns the number of the last process or thread that was started in the worker's namespace."""
        return int(self.text("loadavg").split()[-1]) if self._contained else 0

    def shared_files(self) -> int:
        """Size of the folder /dev/shm, which grows with each new file; and all of System V's segments."""
        try:
            size = os.stat("/dev/shm").st_size
        except OSError:
            size = 0
        return size + (len(self.text("shared")) if self._contained else 0)

    def memory(self) -> tuple[int, int]:
        """Bytes of memory and of address space, without what the harness has taken for operands."""
        own = guarded_bytes()
        kilobytes = sum(int(self._lines[at].split()[1]) for at in self._memory_lines)
        return kilobytes * 1024 - own, self._kilobytes(b"VmSize") * 1024 - own

    def mappings(self) -> frozenset[bytes]:
        """Returns the mapped files, as lines of /proc/self/maps.

        Reading them takes longer than all other rows together. So they are read only when the sizes in
        /proc/self/status have changed.
        """
        shape = [self._lines[at] for at in self._shape_lines]
        if shape != self._shape:
            self._shape, self._maps = shape, self._mapped_files()
        return self._maps

    def expect_mappings(self) -> None:
        """Takes the present sizes for those of `mappings`.

        The harness has mapped more memory, and has changed nothing of what was mapped before.
        """
        if self._maps:
            self.look()
            self._shape = [self._lines[at] for at in self._shape_lines]

    def _mapped_files(self) -> frozenset[bytes]:
        fd, parts = self._files["maps"], []
        if fd < 0:
            return frozenset()
        os.lseek(fd, 0, os.SEEK_SET)
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return frozenset(line for line in b"".join(parts).splitlines() if b" 0 " not in line)

    def _kilobytes(self, name: bytes) -> int:
        at = self._at.get(name)
        return 0 if at is None else int(self._lines[at].split()[1])


# ---- the table ------------------------------------------------------------------------------------------

Say = Callable[[Any, Any], list[str]]
"""Names the differences between two values of a row."""


@dataclass(frozen=True)
class Row:
    """One part of the state.

    read: reads it. say: names the changes; [] for none. unfair: a kernel that changes it takes what the other
    kernels do not have, so it is never ok; `say` returns what the kernel did. fresh: the harness changes it,
    too, so it is compared with its value right before the kernel, not with the one at the worker's start.
    adds: small changes of several kernels add up. alone: not compared where a driver works in the process,
    which may change it at any time.
    """

    read: Callable[[Reader], Any]
    say: Say
    unfair: bool = False
    fresh: bool = False
    adds: bool = False
    alone: bool = False


def rows(*, alone: bool) -> tuple[Row, ...]:
    """Returns the table. alone: whether no driver works in the process."""
    return tuple(row for row in _rows(0 if alone else _OF_DRIVERS) if alone or not row.alone)


def _rows(of_drivers: int) -> tuple[Row, ...]:
    return (
        # Unfair.
        Row(Reader.scheduling, _say_scheduling, unfair=True, fresh=True),
        Row(Reader.thread_count, _say_threads(of_drivers), unfair=not of_drivers, fresh=True),
        Row(Reader.other_threads_ns, _say_other_threads, unfair=True, fresh=True, alone=True),
        Row(Reader.ended_children, _changed("ran processes"), unfair=True, fresh=True, alone=True),
        Row(Reader.last_task, _say_tasks, unfair=True, fresh=True, alone=True),
        Row(_content("cgroup"), _changed("moved to another control group"), unfair=True, fresh=True),
        Row(Reader.memory_policy, _changed("changed the policy of its memory"), unfair=True),
        Row(Reader.status_of_time, _say_lines("changed "), unfair=True),
        Row(lambda reader: reader.clock.changed(), _changed("changed the clock's code"), unfair=True),
        Row(lambda _: touched_guards(), _changed("opened a guard page and used it"), unfair=True, alone=True),
        Row(Reader.mappings, _say_mappings, unfair=True, fresh=True, alone=True),
        # Of no effect on its own time.
        Row(Reader.descriptors, _say_descriptors(of_drivers), fresh=True),
        Row(Reader.own_descriptors, _changed("descriptors of its own")),
        Row(Reader.status, _say_lines("")),
        Row(Reader.caught_signals, _changed("signal handlers"), alone=True),
        Row(_content("limits"), _changed("limits")),
        Row(Reader.timers, _changed("timers")),
        Row(lambda _: _behind(os.stat(".")), _changed("working folder")),
        Row(lambda _: _behind(os.stat("/")), _changed("root folder")),
        Row(_environment, _changed("environment"), alone=True),
        Row(lambda _: locale.setlocale(locale.LC_ALL), _changed("locale")),
        Row(_floating_point_modes, _changed("floating-point modes")),
        Row(Reader.settings, _changed("process settings")),
        Row(Reader.shared_files, _changed("shared memory"), fresh=True, alone=True),
        Row(Reader.memory, _say_memory, fresh=True, adds=True, alone=True),
        Row(Reader.mappings, _say_operands, fresh=True, alone=True),
    )


def _changed(words: str) -> Say:
    return lambda before, now: [words] if before != now else []


def _say_lines(prefix: str) -> Say:
    def say(before: list[bytes], now: list[bytes]) -> list[str]:
        if now == before:
            return []
        changed = [new.partition(b":")[0] for old, new in zip(before, now, strict=True) if old != new]
        return list(dict.fromkeys(prefix + _WORDS.get(name, name.decode()) for name in changed))

    return say


def _say_descriptors(most: int) -> Say:
    def say(before: int, now: int) -> list[str]:
        if now < before:
            return ["descriptors closed"]
        return [f"{now - before} descriptors leaked"] if now - before > most else []

    return say


def _say_threads(most: int) -> Say:
    return lambda before, now: (
        [f"left {now - before} threads running behind it"] if now - before > most else []
    )


def _say_scheduling(before: dict[int, tuple[object, ...]], now: dict[int, tuple[object, ...]]) -> list[str]:
    said = []
    if any(now[thread][0] != before[thread][0] for thread in before):
        said.append("changed the cores that it may use")
    if any(now[thread][1:] != before[thread][1:] for thread in before):
        said.append("changed its scheduling")
    return said


def _say_other_threads(before: tuple[int, int], now: tuple[int, int]) -> list[str]:
    used = now[1] - before[0]
    return [f"computed for {used / 1e6:.3g} ms in threads of its own"] if used > _MOST_OTHER_NS else []


def _say_tasks(before: int, now: int) -> list[str]:
    return [f"started {max(1, now - before)} threads or processes"] if before != now else []


def _say_memory(before: tuple[int, int], now: tuple[int, int]) -> list[str]:
    memory, space = now[0] - before[0], now[1] - before[1]
    if memory > _MOST_GROWN_BYTES + _HARNESS_SHARE * guarded_bytes():
        return [f"{memory / 2**30:.2f} GiB of memory"]
    return [f"{space / 2**30:.0f} GiB of address space"] if space > _MOST_SPACE_BYTES else []


def _say_mappings(before: frozenset[bytes], now: frozenset[bytes]) -> list[str]:
    """Returns the names of the program's files that are mapped otherwise: with other rights, or no more."""
    gone = [line.split(None, 5) for line in before - now]
    files = {one[5].rsplit(b"/", 1)[-1].decode(errors="replace") for one in gone if one[1].endswith(b"p")}
    return [f"changed how {', '.join(sorted(files))} is mapped"] if files else []


def _say_operands(before: frozenset[bytes], now: frozenset[bytes]) -> list[str]:
    """Says whether operands have other rights. Those that the harness has freed are not mapped any more."""
    gone = [line.split(None, 5) for line in before - now]
    shared = {one[4] for one in gone if one[1].endswith(b"s")}
    kept = shared and shared & {line.split(None, 5)[4] for line in now}
    return ["rights of its operands' memory"] if kept else []


# ---- reading ----------------------------------------------------------------------------------------------


def _content(name: str) -> Callable[[Reader], bytes]:
    return lambda reader: reader.text(name)


def _behind(there: os.stat_result) -> tuple[int, int]:
    return there.st_dev, there.st_ino


def _environment(_: Reader) -> bytes:
    """Returns the pointers of C's environ. They change when a variable is added or gets a new value."""
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


def _floating_point_modes(_: Reader) -> bytes:
    if _LIBM is None:
        return b""
    _LIBM.fegetenv(_FENV)
    raw = _FENV.raw
    if _MACHINE != "x86_64":
        return raw[:4]  # FPCR of aarch64
    modes = int.from_bytes(raw[_MXCSR_AT : _MXCSR_AT + 4], "little") & _MXCSR_CONTROL
    return raw[:2] + modes.to_bytes(4, "little")


def _scheduling(thread: int) -> tuple[object, ...]:
    """Policy, nice value, priority, limits of the frequency, and the priority of reads and writes."""
    _ATTRIBUTES.raw = bytes(len(_ATTRIBUTES))
    if _SCHED_GETATTR and _LIBC.syscall(_SCHED_GETATTR, thread, _ATTRIBUTES, len(_ATTRIBUTES), 0) == 0:
        return _ATTRIBUTES.raw, _LIBC.syscall(_IOPRIO_GET, 1, thread)
    return os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)


def _keep_open(path: str) -> int:
    """Opens a file and returns the descriptor; -1 when this operating system does not have the file."""
    with unless_passing():
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return -1


def _file_behind(fd: int) -> tuple[int, int] | None:
    try:
        return _behind(os.fstat(fd))
    except OSError:
        return None


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)
