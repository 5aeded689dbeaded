"""The clock of the CPU target: the harness's own machine code times runs of a kernel.

A kernel must not report its own time, and a Python loop would add about a microsecond to each run. So this
module has the machine code of `SOURCE` for each supported processor; a test compiles `SOURCE` again and
compares. Other processors get the same loop in Python.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.clock_code import ClockCode

SOURCE = """
typedef unsigned char Byte;
typedef unsigned long Word __attribute__((vector_size(16), aligned(1), may_alias));
typedef struct { long seconds, nanoseconds; } Clock;
typedef struct {
  const Byte *from;                     /* masks; those of run i begin at[i + 1] bytes beyond */
  const long *at;
  long steps[3];                        /* bytes from one mask to the next along each outer axis */
  long within;                          /* ~0: masks as long as the inner axis; 15: of 16 bytes */
} Masks;
typedef struct {
  Byte *to;
  long extents[3], width;               /* the outer axes; bytes of the inner axis */
  Masks masks[2];
} Change;
typedef struct {
  int (*launch)(const void *);
  const void *args;
  int (*now)(int, Clock *);
  long count;
  unsigned long *nanoseconds;           /* of each run */
  const Change *changes;
  long change_count;
  Byte *const *watched;                 /* of each run: bytes of the output that are never 0xFF in a result */
  long watched_count;
  long untouched;                       /* of all, how many a run had not written when it returned */
  long begun;                           /* runs, before whose work the operands changed */
  long kept_run;                        /* whose output is copied to `kept`; -1: none */
  const Byte *out;
  Byte *kept;
  long out_bytes;
} Runs;

static void change(const Change *c, long run) {
  const Masks *p = &c->masks[0], *q = &c->masks[1];
  Byte *to = c->to;
  for (long i = 0; i < c->extents[0]; ++i)
    for (long j = 0; j < c->extents[1]; ++j)
      for (long k = 0; k < c->extents[2]; ++k, to += c->width) {
        const Byte *p0 = p->from + i * p->steps[0] + j * p->steps[1] + k * p->steps[2];
        const Byte *q0 = q->from + i * q->steps[0] + j * q->steps[1] + k * q->steps[2];
        const Byte *p1 = p0 + p->at[run + 1], *q1 = q0 + q->at[run + 1];
        p0 += p->at[run], q0 += q->at[run];
        long at = 0;
        for (; at + 16 <= c->width; at += 16) {
          long in_p = at & p->within, in_q = at & q->within;
          *(Word *)(to + at) ^= *(const Word *)(p0 + in_p) ^ *(const Word *)(p1 + in_p) ^
                                *(const Word *)(q0 + in_q) ^ *(const Word *)(q1 + in_q);
        }
        for (; at < c->width; ++at) {
          long in_p = at & p->within, in_q = at & q->within;
          to[at] ^= p0[in_p] ^ p1[in_p] ^ q0[in_q] ^ q1[in_q];
        }
      }
}

long to_time_runs(Runs *r) {
  for (long i = 0; i < r->count; ++i) {
    Byte *const *watched = r->watched + i * r->watched_count;
    Clock start, stop;
    for (long at = 0; at < r->change_count; ++at) change(&r->changes[at], i);
    r->begun = i + 1;
    for (long at = 0; at < r->watched_count; ++at) *(volatile Byte *)watched[at] = 0xFF;
    r->now(1, &start);
    int returned = r->launch(r->args);
    r->now(1, &stop);
    for (long at = 0; at < r->watched_count; ++at)
      r->untouched += *(const volatile Byte *)watched[at] == 0xFF;
    if (returned) return returned;
    long seconds = stop.seconds - start.seconds;
    r->nanoseconds[i] = (unsigned long)(seconds * 1000000000l + stop.nanoseconds - start.nanoseconds);
    if (i != r->kept_run) continue;
    long at = 0;
    for (; at + 16 <= r->out_bytes; at += 16) *(Word *)(r->kept + at) = *(const Word *)(r->out + at);
    for (; at < r->out_bytes; ++at) ((volatile Byte *)r->kept)[at] = r->out[at];
  }
  return 0;
}
"""
"""Before every run each operand changes: masks of the former run are taken away and others put on, by XOR.
Before each run some output bytes are set to 0xFF, to check that the run has written them when it returns. The
output of one run is copied, to be compared."""

COMPILER_OPTIONS = (
    *("-Os", "-fomit-frame-pointer", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fPIC", "-ffreestanding", "-mno-red-zone"),
)
"""Options for ziglang's `zig cc -target MACHINE-linux-musl`."""

CODE: Mapping[str, bytes] = MappingProxyType(
    {
        "x86_64": bytes.fromhex(
            """
            48837f18000f8e1f030000554157415641554154534883ec4848c7442408000000004531ff48893c244c89fb488b4f38
            488b4740488b573049ffc748894424104885d248894c24180f8e9f0100004531c0488b4f284c89c648c1e6074a8d34c6
            488b4431084885c00f8e6a0100004c894424204801f1488b114c8b411031f64d85c00f8e370100004c8b491831ff4d85
            c90f8e180100004c8b51204531c04c8b59384c0fafde4c0359284c8b71404c0faff74c8b49484d0fafc84d01f14d01d9
            4c8b71684c0faff64c0371584c8b61704c0fafe74c8b59784d0fafd84d01e34d01f34c8b71304c8b61604b8b2cfe4c01
            cd4f8b2cfc4d030cde4d01dd4d031cdc4983fa107d084531f6e9850000004531e44c8b51504d21e24c8bb1800000004d
            21e6430f100411420f104c15000f57c8430f100433430f105435000f57d00f57d1420f1004220f57c2420f1104224c8b
            51204d8d7424104983c4204d39d44d89f47eaeeb2e4c8b51504d21f24c8ba1800000004d21f4428a4415004332041143
            32042343324425004230043249ffc64c8b51204d39d67ccd49ffc04c01d24c8b49184d39c80f8cf3feffff4c8b411048
            ffc74c39c70f8cd3feffff488b410848ffc64839c60f8cb4feffff488b3c24488b57304c8b44242049ffc04939d00f8c
            6dfeffff488b4740488b4c24184c897f504885c07e20488b442410480faf4424084801c831c9488b14c8c602ff48ffc1
            483b4f407cf0bf01000000488d742438488b0424ff5010488b0424488b7808488b0424ff1089c5bf01000000488d7424
            28488b0424ff5010488b742418488b3c24488b47404885c07e3b488b4f48488b542410480faf5424084801d631d24989
            f1488b34d6408a364531c04080feff4c89ce410f94c04c01c148894f4848ffc24839d075d985ed0f8590000000488b44
            2428482b4424384869c000ca9a3b4803442430482b442440488b4f20488904d9483b5f587550488b4f704883f9107d04
            31c0eb2631d2488b4760488b4f680f1004100f110411488b4f70488d42104883c2204839ca4889c27edc4839c87d1748
            8b4f60488b57688a0c01880c0248ffc0483b47707ce94883442408084c3b7f180f8c03fdffff31c0eb0631c0c34863c5
            4883c4485b415c415d415e415f5dc3
            """
        ),
        "aarch64": bytes.fromhex(
            """
            080c40f91f0500f1eb170054ffc301d1fa6703a919409952f85f04a9f8031faaf71f8052f65705a9f5031faa16118052
            f44f06a9f30300aa5973a772fe6f02a96c2243a9fa0318aa692240f9180700919f0500f14b0c0054ea031faa6b1640f9
            4b2d169b6e0540f9df0500f1eb0a00546c0140f96f0940f9ed031faaff0500f1cb090054710d40f9ee031faa3f0600f1
            cb080054701140f9ef031faa71c943a91f4200f1608542a9639145a931020d9b608946a9000c0d9b51460e9b722540f9
            40000e9b623d40f943460f9b317878f8927878f842000f9b20787af881787af87100118b6000008b5200128b4100018b
            e2031faaab040054702940f9634140f91002028a6300028a0068f03c216af03c2268e33c436ae33c43800091201c206e
            411c236e001c216e8169e23c001c216e8069a23c42400091701140f97f0010ebcdfdff5411000014702940f9634140f9
            1002028a6300028a04687038306a703825686338436a63381002044a84696238a300034a1002034a1002044a90692238
            42040091701140f95f0010ebebfdff54710d40f9ef0500918c01108bff0111ebebf7ff546f0940f9ce050091df010feb
            ebf6ff546e0540f9ad050091bf010eebebf5ff546c1a40f94a0500915f010ceb6bf4ff546a2240f902000014ea0309aa
            3b21159b5f0500f1782a00f90b010054e8031faa697b68f80805009137010039692240f91f0109eb6bffff54680a40f9
            e14300912000805200013fd6680240a900013fd6680a40f9f403002ae10300912000805200013fd6682240f91f0500f1
            2b010054692640f96a8740f84a0140395ffd03712915899a080500f1692600f941ffff5454050035eaa340a9e90340f9
            eb0f40f9280108cb691240f90829199b08010bcb28793af8682e40f95f0308ebe1020054693a40f93f4100f16a000054
            e8031faa10000014e8031faa692a46a92069e83c4069a83c0a81009108410091693a40f95f0109eb2dffff5406000014
            692a46a9296968384969283808050091693a40f91f0109eb4bffff54680e40f9b52200911f0308eb4beaff54e0031faa
            04000014e0031faac0035fd6807e4093f44f46a9f65745a9f85f44a9fa6743a9fe6f42a9ffc30191c0035fd6
            """
        ),
    }
)
"""platform.machine() -> the machine code of `SOURCE`, which refers to nothing but its arguments."""

_LIBC = ctypes.CDLL(None)
NOW = ctypes.cast(_LIBC.clock_gettime, ctypes.c_void_p).value or 0
"""Address of the C library's clock_gettime, found before a kernel is loaded: none can interpose its own."""


class Masks(ctypes.Structure):
    """Masks of `SOURCE`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("source", "at")),
        ("steps", ctypes.c_long * 3),
        ("within", ctypes.c_long),
    )


class Change(ctypes.Structure):
    """Change of `SOURCE`."""

    _fields_ = (
        ("to", ctypes.c_void_p),
        ("extents", ctypes.c_long * 3),
        ("width", ctypes.c_long),
        ("masks", Masks * 2),
    )


class _Runs(ctypes.Structure):
    """Runs of `SOURCE`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("launch", "args", "now")),
        ("count", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("nanoseconds", "changes")),
        ("change_count", ctypes.c_long),
        ("watched", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("watched_count", "untouched", "begun", "kept_run")),
        *((name, ctypes.c_void_p) for name in ("out", "kept")),
        ("out_bytes", ctypes.c_long),
    )


@dataclass(frozen=True)
class Turns:
    """What changes before each of some runs, and what is looked at.

    changes: one for each operand that changes, as an array of `Change`, whose lists `at` have one number more
    than there are runs. watched: addresses of output bytes that are 0xFF in no result, a row for each run.
    kept_run: the run whose output, `out_bytes` at `out`, is copied to `kept`; -1: none.
    """

    changes: ctypes.Array[Change] | None
    watched: npt.NDArray[np.int64]
    kept_run: int = -1
    out: int = 0
    kept: int = 0
    out_bytes: int = 0


@dataclass(frozen=True)
class Runs:
    """returned: the kernel's return value, 0 for success. untouched: watched bytes that a run had not written
    when it returned, summed over the runs. begun: number of runs before which the operands were changed.
    """

    returned: int
    nanoseconds: npt.NDArray[np.uint64]
    untouched: int
    begun: int


class NativeClock:
    """Runs kernels and measures the time between entry and return with CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._own: tuple[tuple[int, int], ...] = ()
        self._run: Callable[[_Runs], int] = _in_python
        code = CODE.get(platform.machine())
        if code is not None:
            with suppress(OSError):  # the system forbids executable memory
                self._run = self._loaded(code)
        self._code = ClockCode(NOW, self._own)

    def _loaded(self, code: bytes) -> Callable[[_Runs], int]:
        self._memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        rights = mmap.PROT_READ | mmap.PROT_EXEC
        _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(code)), rights)
        self._own = ((address, len(code)),)
        function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(address)
        return lambda runs: int(function(ctypes.addressof(runs)))

    def changed(self) -> bool:
        """Whether a kernel has changed the code of this clock, so that its times cannot be trusted."""
        return self._code.changed()

    def time(self, launch: int, args: int, count: int, turns: Turns) -> Runs:
        """Runs the kernel `count` times. launch, args: addresses of the library's function and its
        argument."""
        nanoseconds = np.zeros(count, np.uint64)
        changes = turns.changes or ()
        runs = _Runs(launch, args, NOW, count, nanoseconds.ctypes.data)
        runs.changes, runs.change_count = ctypes.addressof(changes) if changes else 0, len(changes)
        runs.watched, runs.watched_count = turns.watched.ctypes.data, turns.watched.shape[1]
        runs.kept_run, runs.out, runs.kept = turns.kept_run, turns.out, turns.kept
        runs.out_bytes = turns.out_bytes
        returned = self._run(runs)
        return Runs(returned, nanoseconds, int(runs.untouched), int(runs.begun))


def _in_python(runs: _Runs) -> int:
    """The same loop in Python; the time of an empty call is subtracted."""
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(runs.launch)
    nanoseconds = (ctypes.c_uint64 * runs.count).from_address(runs.nanoseconds)
    changes = (Change * runs.change_count).from_address(runs.changes or ctypes.addressof(nanoseconds))
    watched = (ctypes.c_void_p * (runs.count * runs.watched_count)).from_address(runs.watched)
    empty = min(_once(_LIBC.abs, 0)[1] for _ in range(50))
    for run in range(runs.count):
        for change in changes:
            _change(change, run)
        runs.begun = run + 1
        bytes_of_run = [
            ctypes.c_uint8.from_address(place or 0)
            for place in watched[run * runs.watched_count : (run + 1) * runs.watched_count]
        ]
        for byte in bytes_of_run:
            byte.value = 0xFF
        returned, taken = _once(launch, runs.args)
        runs.untouched += sum(byte.value == 0xFF for byte in bytes_of_run)
        if returned:
            return returned
        nanoseconds[run] = max(1, taken - empty)
        if run == runs.kept_run:
            ctypes.memmove(runs.kept, runs.out, runs.out_bytes)
    return 0


def _change(change: Change, run: int) -> None:
    """`change` of `SOURCE`."""
    extents, width = tuple(change.extents), int(change.width)
    operand = _bytes_at(change.to, extents[0] * extents[1] * extents[2] * width).reshape(*extents, width)
    for place in np.ndindex(*extents):
        for masks in change.masks:
            at = (ctypes.c_long * (run + 2)).from_address(masks.at)
            begin = masks.source + sum(i * step for i, step in zip(place, masks.steps, strict=True))
            size = width if masks.within == -1 else 16
            for start in (at[run], at[run + 1]):
                operand[place] ^= np.resize(_bytes_at(begin + start, size), width)


def _bytes_at(address: int, size: int) -> npt.NDArray[np.uint8]:
    content: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.asarray(np.frombuffer(content, np.uint8))


def _once(function: Callable[[Any], int], argument: Any) -> tuple[int, int]:
    began = time.monotonic_ns()
    returned = function(argument)
    return int(returned), time.monotonic_ns() - began
