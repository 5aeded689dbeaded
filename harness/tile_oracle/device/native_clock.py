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
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.clock_code import ClockCode

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
  unsigned char *const *watched;        /* bytes of the output that are never 0xFF in a result */
  long watched_count;
  long untouched;                       /* of them, how many a run had not written when it returned */
} Runs;

long to_time_runs(Runs *r) {
  for (long i = 0; i < r->count; ++i) {
    unsigned char *sign = i + 1 < r->count && r->sign_count > 0 ? r->signs[i % r->sign_count] : 0;
    Clock start, stop;
    if (sign) *sign ^= 0x80;
    for (long at = 0; at < r->watched_count; ++at) *(volatile unsigned char *)r->watched[at] = 0xFF;
    r->now(1, &start);
    int returned = r->launch(r->args);
    r->now(1, &stop);
    for (long at = 0; at < r->watched_count; ++at)
      r->untouched += *(const volatile unsigned char *)r->watched[at] == 0xFF;
    if (sign) *sign ^= 0x80;
    if (returned) return returned;
    long seconds = stop.seconds - start.seconds;
    r->nanoseconds[i] = (unsigned long)(seconds * 1000000000l + stop.nanoseconds - start.nanoseconds);
  }
  return 0;
}
"""
"""For every run but the last, the sign of one input element is flipped, and flipped back afterwards. So no
two consecutive runs have the same data, and the last run has the data of the expected result. Before each run
some output bytes are set to 0xFF, to check that the run has written them when it returns."""

COMPILER_OPTIONS = (
    *("-Os", "-fomit-frame-pointer", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fPIC", "-ffreestanding", "-mno-red-zone"),
)
"""Options for ziglang's `zig cc -target MACHINE-linux-musl`."""

CODE: Mapping[str, bytes] = MappingProxyType(
    {
        "x86_64": bytes.fromhex(
            """
            488b47184885c00f8e04010000554157415641554154534883ec284989fe4531ed498d5d014839c37d27498b4e304885
            c97e1e498b76284c89e831d248f7f14c8b3cd64d85ff7409418037804531e4eb0641b4014531ff49837e40007e1631c0
            498b4e38488b0cc1c601ff48ffc0493b46407cecbf01000000488d74241841ff5610498b7e0841ff1689c5bf01000000
            488d74240841ff5610498b46404885c07e2b498b4e38498b564831f6488b3cf1408a3f4531c04080ffff410f94c04c01
            c24989564848ffc64839f075df4584e475044180378085ed753a488b442408482b4424184869c000ca9a3b4803442410
            482b442420498b4e204a8904e9498b46184989dd4839c30f8c14ffffff31c0eb0631c0c34863c54883c4285b415c415d
            415e415f5dc3
            """
        ),
        "aarch64": bytes.fromhex(
            """
            080c40f91f0500f16b0a0054ffc301d1f85f04a917409952f65705a9f6031faaf51f8052f44f06a9f30300aa5773a772
            fe1300f9fa6703a9d80600911f0308ebca010054681a40f91f0100f16d010054c90ac89a28d9089b691640f9397968f8
            f90000b428034039fa031f2a080119522803003903000014f9031faa3a008052682240f91f0500f12b010054e8031faa
            691e40f9297968f80805009135010039692240f91f0109eb4bffff54680a40f9e14300912000805200013fd6680240a9
            00013fd6680a40f9f403002ae10300912000805200013fd6682240f91f0500f14b010054691e40f96a2640f92b8540f8
            6b0140397ffd03714a158a9a080500f16a2600f941ffff549a00003728034039080119522803003934020035eaa340a9
            e90340f9eb0f40f9280108cb691240f90829179b08010bcb287936f8f60318aa680e40f91f0308eb8bf7ff54e0031faa
            04000014e0031faac0035fd6807e4093f44f46a9fe1340f9f65745a9f85f44a9fa6743a9ffc30191c0035fd6
            """
        ),
    }
)
"""platform.machine() -> the machine code of `SOURCE`, which refers to nothing but its arguments."""

_LIBC = ctypes.CDLL(None)
NOW = ctypes.cast(_LIBC.clock_gettime, ctypes.c_void_p).value or 0
"""Address of the C library's clock_gettime, found before a kernel is loaded: none can interpose its own."""


class _Runs(ctypes.Structure):
    """Runs of `SOURCE`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("launch", "args", "now")),
        ("count", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("nanoseconds", "signs")),
        ("sign_count", ctypes.c_long),
        ("watched", ctypes.c_void_p),
        ("watched_count", ctypes.c_long),
        ("untouched", ctypes.c_long),
    )


@dataclass(frozen=True)
class Watch:
    """The bytes that are changed between runs.

    signs: addresses of writable bytes with the signs of input elements. watched: addresses of output bytes
    that are 0xFF in no result.
    """

    signs: npt.NDArray[np.uint64]
    watched: npt.NDArray[np.uint64]

    @cached_property
    def places(self) -> tuple[int, int, int, int]:
        """Address and length of both lists."""
        signs, watched = self.signs, self.watched
        return signs.ctypes.data, len(signs), watched.ctypes.data, len(watched)


@dataclass(frozen=True)
class Runs:
    """returned: the kernel's return value, 0 for success. untouched: watched bytes that a run had not written
    when it returned, summed over the runs.
    """

    returned: int
    nanoseconds: npt.NDArray[np.uint64]
    untouched: int


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

    def time(self, launch: int, args: int, count: int, watch: Watch) -> Runs:
        """Runs the kernel `count` times. launch, args: addresses of the library's function and its
        argument."""
        nanoseconds = np.zeros(count, np.uint64)
        runs = _Runs(launch, args, NOW, count, nanoseconds.ctypes.data, *watch.places, 0)
        returned = self._run(runs)
        return Runs(returned, nanoseconds, int(runs.untouched))


def _in_python(runs: _Runs) -> int:
    """The same loop in Python; the time of an empty call is subtracted."""
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(runs.launch)
    nanoseconds = (ctypes.c_uint64 * runs.count).from_address(runs.nanoseconds)
    signs = (ctypes.c_void_p * runs.sign_count).from_address(runs.signs)
    watched = [
        ctypes.c_uint8.from_address(place or 0)
        for place in (ctypes.c_void_p * runs.watched_count).from_address(runs.watched)
    ]
    empty = min(_once(_LIBC.abs, 0)[1] for _ in range(50))
    for run in range(runs.count):
        last = run + 1 == runs.count
        sign = None if last or not len(signs) else ctypes.c_uint8.from_address(signs[run % len(signs)] or 0)
        if sign is not None:
            sign.value ^= 0x80
        for byte in watched:
            byte.value = 0xFF
        returned, taken = _once(launch, runs.args)
        runs.untouched += sum(byte.value == 0xFF for byte in watched)
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
