"""The clock of the CPU target: times runs of a kernel from machine code of the harness's own.

A kernel must not report its own time, and a loop in Python around a kernel of a microsecond adds as much
again. So `SOURCE` was compiled once for each processor, and its code stands here; a test compiles it
again and compares. A processor that is not listed gets the same loop in Python.
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

SOURCE = """
typedef struct { long seconds, nanoseconds; } Clock;
typedef struct {
  int (*launch)(const void *);
  const void *args;
  int (*now)(int, Clock *);
  long count;
  unsigned long *nanoseconds;           /* of each run */
  unsigned char *const *signs;          /* bytes of inputs, in whose highest bit a sign is */
  long sign_count;
  const unsigned char *const *watched;  /* bytes of the output */
  unsigned char *seen;                  /* what they were when the last run returned */
  long watched_count;
} Runs;

long to_time_runs(const Runs *r) {
  for (long i = 0; i < r->count; ++i) {
    unsigned char *sign = i + 1 < r->count && r->sign_count > 0 ? r->signs[i % r->sign_count] : 0;
    Clock start, stop;
    if (sign) *sign ^= 0x80;
    r->now(1, &start);
    int returned = r->launch(r->args);
    r->now(1, &stop);
    if (i + 1 == r->count)
      for (long at = 0; at < r->watched_count; ++at)
        r->seen[at] = *(const volatile unsigned char *)r->watched[at];
    if (sign) *sign ^= 0x80;
    if (returned) return returned;
    long seconds = stop.seconds - start.seconds;
    r->nanoseconds[i] = (unsigned long)(seconds * 1000000000l + stop.nanoseconds - start.nanoseconds);
  }
  return 0;
}
"""
"""Before every run but the last it flips the sign of one element of an input, and back after it: no run finds
the data of another one, and the last run finds the data that the result is compared with."""

COMPILER_OPTIONS = (
    *("-Os", "-fomit-frame-pointer", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fPIC", "-ffreestanding", "-mno-red-zone"),
)
"""Of ziglang's `zig cc -target MACHINE-linux-musl`."""

CODE: Mapping[str, bytes] = MappingProxyType(
    {
        "x86_64": bytes.fromhex(
            """
            488b47184885c00f8edc000000554157415641554154534883ec284989fe4531ed498d5d014839c37d27498b4e304885
            c97e1e498b76284c89e831d248f7f14c8b3cd64d85ff7409418037804531e4eb0641b4014531ffbf01000000488d7424
            1841ff5610498b7e0841ff1689c5bf01000000488d74240841ff5610493b5e18752349837e48007e1c31c0498b4e3848
            8b0cc18a09498b5640880c0248ffc0493b46487ce64584e475044180378085ed753a488b442408482b4424184869c000
            ca9a3b4803442410482b442420498b4e204a8904e9498b46184989dd4839c30f8c3cffffff31c0eb0631c0c34863c548
            83c4285b415c415d415e415f5dc3
            """
        ),
        "aarch64": bytes.fromhex(
            """
            080c40f91f0500f12b090054ff8301d1f65704a916409952f5031faaf44f05a9f30300aa5673a772fe6702a9f85f03a9
            b7060091ff0208ebca010054681a40f91f0100f16d010054a90ac89a28d5089b691640f9387968f8f80000b408034039
            f9031f2a080119520803003903000014f8031faa39008052680a40f9e14300912000805200013fd6680240a900013fd6
            680a40f9f403002ae10300912000805200013fd6680e40f9ff0208eba1010054682640f91f0500f14b010054e8031faa
            69aa43a9297968f8290140394969283808050091692640f91f0109eb2bffff5499000037080340390801195208030039
            34020035eaa340a9e90340f9eb0f40f9280108cb691240f90829169b08010bcb287935f8f50317aa680e40f9ff0208eb
            8bf8ff54e0031faa04000014e0031faac0035fd6807e4093f44f45a9f65744a9f85f43a9fe6742a9ff830191c0035fd6
            """
        ),
    }
)
"""Machine, as platform.machine() names it -> the code of `SOURCE`. It refers to nothing but its arguments."""

_LIBC = ctypes.CDLL(None)
_NOW = ctypes.cast(_LIBC.clock_gettime, ctypes.c_void_p).value


class _Runs(ctypes.Structure):
    """Runs of `SOURCE`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("launch", "args", "now")),
        ("count", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("nanoseconds", "signs")),
        ("sign_count", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("watched", "seen")),
        ("watched_count", ctypes.c_long),
    )


@dataclass(frozen=True)
class Watch:
    """What is touched between runs.

    signs: addresses of bytes that hold signs of input elements, which must be writable. watched: addresses of
    bytes of the output.
    """

    signs: npt.NDArray[np.uint64]
    watched: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Runs:
    """returned: what the kernel returned, 0 if nothing failed. seen: the watched bytes as they were then."""

    returned: int
    nanoseconds: npt.NDArray[np.uint64]
    seen: npt.NDArray[np.uint8]


class NativeClock:
    """Runs kernels and takes the time between entry and return with CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._run: Callable[[_Runs], int] = _in_python
        code = CODE.get(platform.machine())
        if code is not None:
            with suppress(OSError):  # a system that lets no memory be executable
                self._run = self._loaded(code)

    def _loaded(self, code: bytes) -> Callable[[_Runs], int]:
        self._memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        rights = mmap.PROT_READ | mmap.PROT_EXEC
        _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(code)), rights)
        function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(address)
        return lambda runs: int(function(ctypes.addressof(runs)))

    def time(self, launch: int, args: int, count: int, watch: Watch) -> Runs:
        """Run `count` times. launch, args: the addresses of a library's function and of its argument."""
        nanoseconds, seen = np.zeros(count, np.uint64), np.zeros(len(watch.watched), np.uint8)
        signs, watched = watch.signs, watch.watched
        runs = _Runs(launch, args, _NOW, count, nanoseconds.ctypes.data, signs.ctypes.data, len(signs))
        runs.watched, runs.seen, runs.watched_count = watched.ctypes.data, seen.ctypes.data, len(watched)
        return Runs(self._run(runs), nanoseconds, seen)


def _in_python(runs: _Runs) -> int:
    """The same loop, less what an empty call takes."""
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(runs.launch)
    nanoseconds = (ctypes.c_uint64 * runs.count).from_address(runs.nanoseconds)
    signs = (ctypes.c_void_p * runs.sign_count).from_address(runs.signs)
    empty = min(_once(_LIBC.abs, 0)[1] for _ in range(50))
    for run in range(runs.count):
        last = run + 1 == runs.count
        sign = None if last or not len(signs) else ctypes.c_uint8.from_address(signs[run % len(signs)] or 0)
        if sign is not None:
            sign.value ^= 0x80
        returned, taken = _once(launch, runs.args)
        if last and runs.watched_count:
            watched = (ctypes.c_void_p * runs.watched_count).from_address(runs.watched)
            seen = (ctypes.c_uint8 * runs.watched_count).from_address(runs.seen)
            for at, place in enumerate(watched):
                seen[at] = ctypes.c_uint8.from_address(place or 0).value
        if sign is not None:
            sign.value ^= 0x80
        if returned:
            return returned
        nanoseconds[run] = max(1, taken - empty)
    return 0


def _once(function: Callable[[Any], int], argument: Any) -> tuple[int, int]:
    began = time.monotonic_ns()
    returned = function(argument)
    return int(returned), time.monotonic_ns() - began
