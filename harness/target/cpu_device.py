"""The CPU as a device. Only a worker process imports this."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.measure.reference import (
    STORAGE,
    Array,
    Expectation,
    decode,
    encode,
    expectation,
    integer_operands,
    random_operands,
)
from harness.problem import GemmProblem, Problem
from harness.problem.pointwise import operands_swapped, pointwise_conv
from harness.target.base import CheckResult, DataFiles, DeviceInfo, KernelFailed, ProblemRefused
from harness.target.core_lock import CoreLock
from harness.target.cpu_info import cpu_name, last_level_cache_bytes, memory_available_bytes
from harness.target.device_state import DeviceState
from harness.target.guarded_memory import GuardedBuffer, holding
from harness.target.stray_values import POISON_BYTE, nan_count, unwritten

_ABI_VERSION = 1
_TO_OK, _TO_UNSUPPORTED = 0, 1
_MEMORY_SHARE = 0.7


_EXTENTS = (
    *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "Do", "Ho", "Wo"),
    *("stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w"),
    *("dilation_d", "dilation_h", "dilation_w"),
)


class _ConvArgs(ctypes.Structure):
    """kernels/cpu/abi.h: to_conv_args."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("in0", "in1", "out", "workspace")),
        *((name, ctypes.c_int64) for name in _EXTENTS),
    )


class _Loaded:
    """One problem's data. Integer data lie flush against guard pages; random data are aligned."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self.seed = seed
        first, second = integer_operands(problem, seed)
        self.expected: Expectation = expectation(problem, first, second, seed)
        self.integers = [holding(encode(values, problem.dtype), flush=True) for values in (first, second)]
        self.storage = STORAGE[problem.dtype]
        self.out_shape = problem.operand_shapes[2]
        self._out_bytes = math.prod(self.out_shape) * self.storage.itemsize
        self.out = GuardedBuffer(self._out_bytes, flush=True)
        self._random: list[GuardedBuffer] | None = None
        self._timed_out: GuardedBuffer | None = None

    def random(self) -> tuple[list[GuardedBuffer], GuardedBuffer]:
        """Inputs and output for timing, made when the first kernel has passed its check."""
        if self._random is None or self._timed_out is None:
            self._random = [
                holding(values, flush=False) for values in random_operands(self.problem, self.seed)
            ]
            self._timed_out = GuardedBuffer(self._out_bytes, flush=False)
        return self._random, self._timed_out


def _arguments(problem: Problem, inputs: list[GuardedBuffer], out: GuardedBuffer) -> _ConvArgs:
    first, second = inputs
    if isinstance(problem, GemmProblem):
        first, second = (second, first) if operands_swapped(problem) else (first, second)
        problem = pointwise_conv(problem)
    args = _ConvArgs(first.address, second.address, out.address, 0)
    for name in _EXTENTS:
        setattr(args, name, getattr(problem, name))
    return args


class CpuDevice:
    """One core of this machine, pinned while it works."""

    def __init__(self) -> None:
        self.info = DeviceInfo(cpu_name(), f"{platform.system()} {platform.release()}")
        self.kernel_seconds = self.timed_ms = 0.0
        self.cold_cache = False
        self._flush: Array | None = None
        self._core = CoreLock()
        self._libraries: dict[Path, ctypes.CDLL] = {}
        self._workspaces: dict[bool, GuardedBuffer] = {}
        self._loaded: _Loaded | None = None

    def load(self, problem: Problem, seed: int) -> None:
        self._loaded = None
        self._workspaces.clear()
        _refuse_unless_there_is(_memory_needed_bytes(problem), "data and reference")
        self.claim()
        self._loaded = _Loaded(problem, seed)

    def claim(self) -> None:
        self._core.acquire()

    def idle(self) -> None:
        self._core.release()

    def check(self, binary: Path) -> CheckResult:
        loaded = self._require()
        try:
            library = self._library(binary)
        except OSError as error:
            return CheckResult("build_error", f"cannot be loaded: {error}")
        args = _arguments(loaded.problem, loaded.integers, loaded.out)
        return self._launch(library, args, loaded.out) or _compare(loaded)

    def apply(self, problem: Problem, binary: Path, data: DataFiles) -> CheckResult:
        _refuse_unless_there_is(problem.bytes, "a copy of the data")
        try:
            library = self._library(binary)
        except OSError as error:
            return CheckResult("build_error", f"cannot be loaded: {error}")
        storage, shapes = STORAGE[problem.dtype], problem.operand_shapes
        # Copies between guard pages: a kernel that strays faults, and the caller's own data stay whole.
        inputs = [
            holding(np.memmap(path, storage, "r", shape=shape), flush=True)
            for path, shape in zip((data.first, data.second), shapes, strict=False)
        ]
        out = GuardedBuffer(math.prod(shapes[2]) * storage.itemsize, flush=True)
        failure = self._launch(library, _arguments(problem, inputs, out), out)
        if failure is not None:
            return failure
        values = out.view(storage, shapes[2])
        missing = unwritten(values)
        given = (buffer.view(storage, shape) for buffer, shape in zip(inputs, shapes, strict=False))
        # A NaN that the caller put in may come out as any NaN.
        if missing and not any(nan_count(operand, problem.dtype) for operand in given):
            return CheckResult("wrong", missing)
        values.tofile(data.out)
        return CheckResult("ok")

    def _launch(self, library: ctypes.CDLL, args: _ConvArgs, out: GuardedBuffer) -> CheckResult | None:
        """Run once over a poisoned output; what is wrong with how that went, or None."""
        try:
            workspace = self._attach_workspace(library, args, flush=True)
        except MemoryError as error:
            return CheckResult("unsupported", f"its workspace: {error}")
        out.fill(POISON_BYTE)
        began = time.monotonic()
        returned = library.to_launch(ctypes.byref(args))
        self.kernel_seconds += time.monotonic() - began
        if returned == _TO_UNSUPPORTED:
            return CheckResult("unsupported", "the kernel refused the problem")
        if returned != _TO_OK:
            return CheckResult("wrong", f"the kernel returned {returned}")
        if not out.slack_is(POISON_BYTE) or not (workspace is None or workspace.slack_is(POISON_BYTE)):
            return CheckResult("wrong", "wrote outside its output or workspace", tainted=True)
        return None

    def sample(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        loaded = self._require()
        library = self._library(binary)
        inputs, out = loaded.random()
        args = _arguments(loaded.problem, inputs, out)
        self._attach_workspace(library, args, flush=False)
        nanoseconds = np.zeros(count, np.uint64)
        at_once = 1 if self.cold_cache else count
        for first in range(0, count, at_once):
            if self.cold_cache:
                self._flush_caches()
            began = time.monotonic()
            to = nanoseconds.ctypes.data + first * nanoseconds.itemsize
            returned = library.to_time(ctypes.byref(args), at_once, to)
            self.kernel_seconds += time.monotonic() - began
            if returned != _TO_OK:
                raise KernelFailed(f"the kernel returned {returned} when it was timed")
        if not nanoseconds.all():
            raise KernelFailed("the kernel stored no time for a run")
        self.timed_ms += float(nanoseconds.sum()) / 1e6
        return nanoseconds.astype(np.float64)

    def state(self) -> DeviceState:
        return DeviceState()

    def _flush_caches(self) -> None:
        """Writes twice what the caches hold: nothing of a kernel's data is left in them."""
        if self._flush is None:
            self._flush = np.zeros(2 * last_level_cache_bytes(), np.uint8)
        self._flush += 1

    def _require(self) -> _Loaded:
        assert self._loaded is not None, "load() comes first"
        return self._loaded

    def _library(self, binary: Path) -> ctypes.CDLL:
        library = self._libraries.get(binary)
        if library is None:
            library = ctypes.CDLL(str(binary), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            try:
                version = library.to_abi_version()
                library.to_workspace_bytes.restype = ctypes.c_int64
                library.to_launch.argtypes = (ctypes.c_void_p,)
                library.to_time.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
            except AttributeError as error:
                raise OSError(str(error)) from None
            if version != _ABI_VERSION:
                raise OSError(f"it speaks ABI {version}, this harness {_ABI_VERSION}")
            self._libraries[binary] = library
        return library

    def _attach_workspace(
        self, library: ctypes.CDLL, args: _ConvArgs, *, flush: bool
    ) -> GuardedBuffer | None:
        size = int(library.to_workspace_bytes(ctypes.byref(args)))
        if size <= 0:
            return None
        # The ABI promises 64-byte alignment, so even a flush workspace is rounded up to it.
        size = -(-size // 64) * 64
        workspace = self._workspaces.get(flush)
        if workspace is None or workspace.size != size:
            # One at a time: a pool's many sizes together could be more than there is memory.
            self._workspaces.pop(flush, None)
            workspace = self._workspaces[flush] = GuardedBuffer(size, flush=flush)
        if flush:
            workspace.fill(POISON_BYTE)
        args.workspace = workspace.address
        return workspace


def open_device() -> CpuDevice:
    """Called by the worker, and nowhere else."""
    return CpuDevice()


def _refuse_unless_there_is(needed_bytes: int, what_for: str) -> None:
    there = memory_available_bytes()
    if needed_bytes > _MEMORY_SHARE * there:
        raise ProblemRefused(
            f"needs {needed_bytes / 2**30:.1f} GiB of memory for {what_for}, {there / 2**30:.1f} GiB are free"
        )


def _memory_needed_bytes(problem: Problem) -> int:
    """Integer and random inputs, two outputs, and the reference's fp32 copies."""
    values = [math.prod(shape) for shape in problem.operand_shapes]
    return 2 * problem.bytes + sum(values[:2]) + 12 * sum(values)


def _compare(loaded: _Loaded) -> CheckResult:
    """Bit for bit, but zeros of either sign are equal."""
    expected = loaded.expected
    bits_type = np.dtype(f"u{loaded.storage.itemsize}")
    out = loaded.out.view(loaded.storage, (math.prod(loaded.out_shape),))
    bits = out.view(bits_type)
    if expected.points is not None:
        stray = _stray_values(out, loaded.problem.dtype)
        if stray:
            return CheckResult("wrong", stray, expected.kind, expected.count)
        bits = bits[expected.points]
    wanted = expected.values.reshape(-1).view(bits_type)
    if np.array_equal(bits, wanted):
        return CheckResult("ok", "", expected.kind, expected.count)
    sign = bits_type.type(1 << (8 * bits_type.itemsize - 1))
    different = (bits != wanted) & (((bits | wanted) & ~sign) != 0)
    if not different.any():
        return CheckResult("ok", "", expected.kind, expected.count)
    return CheckResult("wrong", _explain(loaded, bits, wanted, different), expected.kind, expected.count)


def _stray_values(out: Array, dtype: str) -> str | None:
    """What a spot check looks at everywhere: values left unwritten, and NaN."""
    missing = unwritten(out)
    if missing:
        return missing
    nan = nan_count(out, dtype)
    return f"{nan:,} of {out.size:,} values are NaN" if nan else None


def _explain(loaded: _Loaded, bits: Array, wanted: Array, different: npt.NDArray[np.bool_]) -> str:
    dtype, points = loaded.problem.dtype, loaded.expected.points
    storage = loaded.storage
    stray = _stray_values(bits.view(storage), dtype) if points is None else None
    at = int(np.argmax(different))
    got = float(decode(bits[at : at + 1].view(storage), dtype)[0])
    want = float(decode(wanted[at : at + 1].view(storage), dtype)[0])
    where = np.unravel_index(at if points is None else int(points[at]), loaded.out_shape)
    first = f"at ({', '.join(str(int(i)) for i in where)}) got {got:g}, exact {want:g}"
    count = int(np.count_nonzero(different))
    return f"{count:,} of {different.size:,} values wrong, {first}" + (f"; {stray}" if stray else "")
