"""The CPU as a device. Only a worker process imports this."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.arch.time_bound import Limits
from tile_oracle.device.base import CheckResult, Device, KernelFailed, refuse_unless_there_is
from tile_oracle.device.cpu_data import CpuData, TimedSet
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.native_clock import NativeClock, Turns
from tile_oracle.device.stray_values import POISON_BYTE
from tile_oracle.device.timing import at_least_ms
from tile_oracle.device.turn_lock import CoreLock
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import Array
from tile_oracle.targets.base import DeviceInfo
from tile_oracle.targets.cpu_info import (
    cpu_name,
    cpu_peak_flops,
    last_level_cache_bytes,
    memory_available_bytes,
)

_ABI_VERSION = 1
_TO_OK, _TO_UNSUPPORTED = 0, 1
_MEMORY_SHARE = 0.7
_RUNS_TO_SEE_FLAKINESS = 4
"""Repeated runs on the same data after a wrong result. If the bits differ, the kernel is flaky."""
_CHEAP_TO_COMPARE_BYTES = 1 << 16
"""Outputs up to this size are compared after every batch of timed runs, not only after the last one."""

_LOOK_NS, _LOOK_LEAST, _LOOK_MOST, _LOOK_ONCE_NS = 2e6, 3, 15, 50e6
"""A quick look at a kernel: how long it takes, its fewest and most runs, and the time of a run from which
on it is a single one."""


@dataclass(frozen=True)
class _Library:
    """A loaded kernel: the library, and the address of its to_launch."""

    code: ctypes.CDLL
    launch: int


class _Unfit(OSError):
    """A loaded library that is not a kernel."""


def _not_loaded(binary: Path, error: OSError) -> CheckResult:
    """device_lost where the file cannot even be read and mapped as code, which is no fault of the kernel."""
    try:
        with binary.open("rb") as file:
            mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError as fault:
        text = f"this machine cannot load it: {fault.strerror}: {binary}"
        return CheckResult("device_lost", text, again=True)
    except ValueError:
        pass  # the file is empty
    return CheckResult("build_error", f"cannot be loaded: {error}", again=not isinstance(error, _Unfit))


class CpuDevice(Device):
    """One core of this machine, pinned while it works."""

    adds_nothing = True
    times = True
    """Whether kernels are timed. `load` makes the data for it: no kernel's time limit is spent on that."""

    def __init__(self) -> None:
        self.info = DeviceInfo(cpu_name(), f"{platform.system()} {platform.release()}")
        self.kernel_seconds = self._timed_ms = 0.0
        self.limits = Limits(cpu_peak_flops())
        self.cold_cache = False
        self._flush: Array | None = None
        self._core = CoreLock()
        self._clock = NativeClock()
        self._libraries: dict[Path, _Library] = {}
        self._workspaces: dict[bool, GuardedBuffer] = {}
        """One for checks (True), which ends at a guard page, and one for timing, which only grows."""
        self._workspace_bytes: dict[int, int] = {}
        """By the kernel's to_launch: what it asks for the loaded problem."""
        self._compared: Path | None = None
        """The kernel whose last timed runs gave the correct result, as the last comparison found."""
        self._sampled: Path | None = None
        """The kernel that was timed last."""
        self._loaded: CpuData | None = None
        self._arguments: list[Any] = []
        self._timed_arguments: Any = None

    @property
    def timed_ms(self) -> float:
        return self._timed_ms

    def load(self, problem: Problem, seed: int, made: str = "") -> None:
        self._loaded = self._timed_arguments = None
        self._arguments.clear()
        self._workspaces.clear()
        self._workspace_bytes.clear()
        self._compared = self._sampled = None
        needed, there = _memory_needed_bytes(problem), memory_available_bytes()
        refuse_unless_there_is(needed, _MEMORY_SHARE, there, "memory for data and reference")
        self.claim()
        if self.cold_cache and self._flush is None:
            self._flush = np.ones(2 * last_level_cache_bytes(), np.uint8)
        data = self._loaded = operation_named(problem.op).worker.cpu_data(problem, seed)
        self._arguments += [self._call(problem, checked.inputs, checked.out) for checked in data.sets]
        if self.times:
            self._timed_arguments = self._call(problem, data.timed.inputs, data.timed.out)

    def _call(self, problem: Problem, operands: Sequence[GuardedBuffer], out: GuardedBuffer) -> Any:
        """Returns the operation's argument structure, which has a member `workspace`."""
        return operation_named(problem.op).worker.cpu_arguments(problem, operands, out)

    def inputs(self) -> list[tuple[int, int]]:
        return [] if self._loaded is None else self._loaded.inputs()

    def claim(self) -> None:
        self._core.acquire()

    def idle(self) -> None:
        self._core.release()

    def check(self, binary: Path, lost_ms: float | None = None) -> CheckResult:
        data = self._require()
        try:
            library = self._library(binary)
        except OSError as error:
            return _not_loaded(binary, error)
        for number, checked in enumerate(data.sets):
            before = self.kernel_seconds
            result = self._check_set(library, data, number)
            if result is not None:
                return replace(result, kind="full", points=checked.count)
            taken_ms = 1e3 * (self.kernel_seconds - before)
            # As for `look`: the first run of a shorter kernel says little.
            least_ms = at_least_ms(taken_ms) if number == 0 and taken_ms >= _LOOK_ONCE_NS / 1e6 else 0.0
            if lost_ms is not None and least_ms > lost_ms:
                return CheckResult("ok", "", "full", checked.count, lost_in_ms=taken_ms, at_least_ms=least_ms)
        return CheckResult("ok", "", "full", data.sets[0].count)

    def _check_set(self, library: _Library, data: CpuData, number: int) -> CheckResult | None:
        checked, args = data.sets[number], self._arguments[number]
        failure = self._launch(library, args, checked.out)
        if failure is not None:
            return failure
        wrong = checked.mismatch()
        if wrong is None:
            return None
        if number:
            wrong += f" ({checked.name}; data {checked.where})"
        result = checked.out.view(np.uint8, (checked.out.size,))
        return self._wrong_or_flaky(wrong, result, lambda: self._launch(library, args, checked.out))

    def _wrong_or_flaky(
        self, wrong: str, result: npt.NDArray[np.uint8], again: Callable[[], CheckResult | None]
    ) -> CheckResult:
        """A wrong result is `flaky` if another run on the same data gives different bits."""
        bits = result.copy()
        for _ in range(_RUNS_TO_SEE_FLAKINESS):
            failure = again()
            if failure is not None:
                return failure
            if not np.array_equal(bits, result):
                return CheckResult("flaky", f"different results from the same data: {wrong}")
        return CheckResult("wrong", wrong)

    def _launch(self, library: _Library, args: Any, out: GuardedBuffer) -> CheckResult | None:
        """Runs once over a poisoned output; returns the failure, or None."""
        try:
            workspace = self._attach_workspace(library, args, flush=True)
        except MemoryError as error:
            return CheckResult("unsupported", f"its workspace: {error}")
        out.fill(POISON_BYTE)
        began = time.monotonic()
        returned = library.code.to_launch(ctypes.byref(args))
        self.kernel_seconds += time.monotonic() - began
        if returned == _TO_UNSUPPORTED:
            return CheckResult("unsupported", "the kernel refused the problem")
        if returned != _TO_OK:
            return CheckResult("wrong", f"the kernel returned {returned}")
        if not out.slack_is(POISON_BYTE) or not (workspace is None or workspace.slack_is(POISON_BYTE)):
            return CheckResult("wrong", "wrote outside its output or workspace", tainted=True)
        return None

    def sample(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        timed = self._require().timed
        library = self._library(binary)
        args = self._timed_arguments
        self._attach_workspace(library, args, flush=False)
        at_once = 1 if self.cold_cache else count
        taken = []
        if binary != self._sampled:
            self._sampled = binary
            timed.turns.forget()
        self._compared = None
        cheap = timed.out.size <= _CHEAP_TO_COMPARE_BYTES
        for _ in range(0, count, at_once):
            turns = timed.turns.draw(at_once, keep=cheap)
            if self.cold_cache:
                self._flush_caches()
            taken.append(self._time(library, args, timed, at_once, turns))
            if not cheap:
                continue
            if timed.mismatch() is None:
                self._compared = binary
                continue
            self.require_right(binary)
        nanoseconds = np.concatenate(taken).astype(np.float64) if len(taken) > 1 else taken[0].astype(float)
        self._timed_ms += float(nanoseconds.sum()) / 1e6
        return nanoseconds

    def look(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        """The first run of a short kernel is only its warm-up: it may take many times as long."""
        first = self.sample(binary, 1)
        if first[0] >= _LOOK_ONCE_NS:
            return first
        runs = min(_LOOK_MOST, max(_LOOK_LEAST, int(_LOOK_NS / max(1.0, float(first[0])))))
        return self.sample(binary, max(count, runs))

    def _time(
        self, library: _Library, args: Any, timed: TimedSet, count: int, turns: Turns
    ) -> npt.NDArray[np.uint64]:
        began = time.monotonic()
        runs = self._clock.time(library.launch, ctypes.addressof(args), count, turns)
        timed.turns.ran()
        self.kernel_seconds += time.monotonic() - began
        if runs.returned != _TO_OK:
            raise KernelFailed(f"the kernel returned {runs.returned} when it was timed")
        if runs.untouched:
            raise KernelFailed(
                f"when it was timed, {runs.untouched:,} of {count * turns.watched_count:,} values "
                f"checked in {count:,} runs were not written when it returned"
            )
        return runs.nanoseconds

    def verify(self, binary: Path) -> CheckResult:
        data = self._require()
        timed, library, args = data.timed, self._library(binary), self._timed_arguments
        if not timed.out.slack_is(POISON_BYTE):
            return CheckResult("wrong", "wrote outside its output when it was timed", tainted=True)
        if self._clock.changed():
            return CheckResult("wrong", "changed the clock's code when it was timed", tainted=True)
        timed.turns.forget()
        if self._compared == binary:
            return CheckResult("ok")
        wrong = timed.mismatch()
        if wrong is None:
            return CheckResult("ok")

        def again() -> CheckResult | None:
            turns = timed.turns.stay()
            runs = self._clock.time(library.launch, ctypes.addressof(args), 1, turns)
            if runs.returned != _TO_OK:
                return CheckResult("wrong", f"the kernel returned {runs.returned} when it was timed")
            return None

        again()
        right_now = timed.mismatch() is None
        result = self._wrong_or_flaky(f"when it was timed, {wrong}", timed.turns.kept, again)
        if result.status == "wrong" and right_now:
            return replace(result, detail=f"{result.detail}; correct when it runs alone")
        return result

    def _flush_caches(self) -> None:
        """Writes twice the size of the caches, which evicts the kernel's data."""
        assert self._flush is not None
        self._flush += 1

    def _require(self) -> CpuData:
        assert self._loaded is not None, "load() comes first"
        return self._loaded

    def _library(self, binary: Path) -> _Library:
        library = self._libraries.get(binary)
        if library is None:
            code = ctypes.CDLL(str(binary), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            try:
                version = code.to_abi_version()
                code.to_workspace_bytes.restype = ctypes.c_int64
                code.to_launch.argtypes = (ctypes.c_void_p,)
                launch = ctypes.cast(code.to_launch, ctypes.c_void_p).value or 0
            except AttributeError as error:
                raise _Unfit(str(error)) from None
            if version != _ABI_VERSION:
                raise _Unfit(f"its ABI is {version}, tile-oracle's {_ABI_VERSION}")
            library = self._libraries[binary] = _Library(code, launch)
            self.after_load()
        return library

    def _attach_workspace(self, library: _Library, args: Any, *, flush: bool) -> GuardedBuffer | None:
        size = self._workspace_bytes.get(library.launch)
        if size is None:
            size = int(library.code.to_workspace_bytes(ctypes.byref(args)))
            self._workspace_bytes[library.launch] = size
        if size <= 0:
            args.workspace = None
            return None
        # The ABI promises 64-byte alignment, so even a flush workspace is rounded up to it.
        size = -(-size // 64) * 64
        workspace = self._workspaces.get(flush)
        if workspace is None or workspace.size < size or (flush and workspace.size != size):
            self._workspaces.pop(flush, None)  # its memory may be needed
            workspace = None
            there = memory_available_bytes()
            if size > _MEMORY_SHARE * there:
                raise MemoryError(
                    f"cannot allocate {size:,} bytes: {there / 2**30:.1f} GiB of memory are free"
                )
            workspace = self._workspaces[flush] = GuardedBuffer(size, flush=flush)
        if flush:
            workspace.fill(POISON_BYTE)
        args.workspace = workspace.address
        return workspace


def open_device() -> CpuDevice:
    """Opens the device. Only the worker calls it."""
    return CpuDevice()


def _memory_needed_bytes(problem: Problem) -> int:
    """Operands and results of up to five sets and a copy of a result, their integers, and fp32 copies for the
    reference."""
    values = [math.prod(shape) for shape in problem.operand_shapes]
    return 5 * problem.bytes + 4 * sum(values[:2]) + 12 * sum(values)
