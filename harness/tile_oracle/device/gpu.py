"""A GPU as a device: the same over HIP and CUDA. Only a worker process imports this."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from tile_oracle.device.base import CheckResult, KernelFailed, ProblemRefused
from tile_oracle.device.check_data import Pattern, dense, mantissa
from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.gpu_lock import GpuLock
from tile_oracle.device.gpu_work import (
    GUARD_BYTE,
    GUARD_BYTES,
    Buffer,
    DeviceWork,
    Findings,
    Verdict,
    operand_bytes,
)
from tile_oracle.device.loaded_kernel import Launches, LoadedKernel, Run, load_kernel
from tile_oracle.device.roofline import Limits
from tile_oracle.device.runtime.driver import Driver, Launch, RuntimeFailure, RuntimeMissing
from tile_oracle.device.stray_values import POISON_BYTE, nan_count, unwritten
from tile_oracle.number_formats import STORAGE, decode
from tile_oracle.problem import Problem
from tile_oracle.target.base import DataFiles, DeviceInfo
from tile_oracle.target.device_state import DeviceState, StateReader, StateWatch

_MEMORY_SHARE = 0.9
_MOST_MODULES = 2048
"""More than the pools of one direction hold, 2D and 3D together: sets that mix them load each kernel once."""
_MOST_EVENTS = 257
_SHORT_NS = 250_000.0
"""A kernel shorter than this is timed some at a time, from a graph. Starting one from here takes the host
some microseconds, in which the device would stand still, and two events add 2.5 microseconds to what lies
between (on an H200): 1 % of this."""
_LONG_NS = 4 * _SHORT_NS
"""Of a first run, which is slower than those after it: the kernel is not short, and one look was enough."""
_LEAST_FLUSH_BYTES = 64 << 20
_MOST_REPLAYS = 128
_LEAST_VALUES = 8
"""So many graphs are timed, if so many runs are wanted: a median of two means would say little."""
_EXIT_AFTER_FAULT = 70
SKEW_BYTES = 16
"""All that a kernel may count on (kernels/gpu/abi.h): where the data of some checks begin."""
_SAMPLE = 1 << 18
"""Of the checks for precision so many values are compared: what they look for shows everywhere."""
_RUNS_TO_SEE_FLAKINESS = 4
_FLIPS = 8
_CHANGED_AT_MOST, _CHANGED_SLACK_NS = 4.0, 20_000.0
"""A run after a change of an operand may take so many times as long as others, and so much more: caches that
must be filled again, clocks that rise only slowly."""


@dataclass
class _Timer:
    """How a kernel is timed. graph: 0, or an executable graph of `repeats` runs.

    changed_ns: what a run took when an operand was changed before each one. batches: how often it was asked
    for samples. The operands change before every second batch, the first one included, and with them the
    right result: so the last one is right only where the work was done after the change.
    """

    launches: Launches
    graph: int
    repeats: int
    changed_ns: float = math.inf
    batches: int = 0


@dataclass(frozen=True)
class _Set:
    """Operands of a check, room for the result, and what must come of them: all values, or `sample` of
    them.
    """

    pattern: Pattern
    where: str
    inputs: tuple[Buffer, Buffer]
    out: Buffer
    expected: Buffer
    sample: int | None


class _Loaded:
    """One problem's data on the device: operands of every check, and what must come of them.

    Kernels are timed on the first set, whose columns are negated again and again, and with them the right
    result: so no earlier result is right.
    """

    def __init__(self, driver: Driver, work: DeviceWork, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._driver, self._work, self._seed = driver, work, seed
        self._buffers: list[Buffer] = []
        self._bytes = operand_bytes(problem)
        self.workspace: Buffer | None = None
        self.timing_workspace: Buffer | None = None
        self._round = 0
        self.sets = [self._set(dense(problem), 0, None)]
        skewed: Buffer | None = None
        for pattern in mantissa(problem):
            self.sets.append(self._set(pattern, SKEW_BYTES, _SAMPLE, skewed))
            skewed = self.sets[-1].out
        driver.synchronize()

    def _set(self, pattern: Pattern, skew: int, sample: int | None, out: Buffer | None = None) -> _Set:
        # NaN around the inputs: who reads beside them computes nonsense.
        first, second = (self.buffer(self._bytes[i], POISON_BYTE, skew) for i in (0, 1))
        out = out or self.buffer(self._bytes[2], skew=skew)
        size = STORAGE[self.problem.result_dtype].itemsize
        expected = self.buffer(self._bytes[2] if sample is None else min(self._bytes[2], sample * size))
        self._work.fill(self.problem, pattern, self._seed, first.address, second.address)
        self._work.reference(self.problem, first.address, second.address, expected.address, sample)
        where = f"{skew} bytes beyond a 256-byte boundary" if skew else "at 256-byte boundaries"
        return _Set(pattern, where, (first, second), out, expected, sample)

    def renew(self) -> None:
        """Other operands to time on, and an output that nothing was written to."""
        timed = self.sets[0]
        self._round += 1
        seed = self._seed + self._round
        self._work.negate_columns(self.problem, seed, timed.inputs[1].address, timed.expected.address)
        timed.out.poison()

    def sign_flips(self, count: int) -> list[Launch]:
        """Of elements of the second operand of what is timed, far apart."""
        values = math.prod(self.problem.operand_shapes[1])
        second = self.sets[0].inputs[1].address
        return [self._work.sign_flip(self.problem, second, values * i // count) for i in range(count)]

    def buffer(self, size_bytes: int, guard: int = GUARD_BYTE, skew: int = 0) -> Buffer:
        buffer = Buffer(self._driver, size_bytes, guard, skew)
        self._buffers.append(buffer)
        return buffer

    def exact_workspace(self, size_bytes: int) -> Buffer | None:
        """Scratch memory for a check, just as large as the kernel may use; None for a kernel without any.

        One at a time, since a pool's many sizes together could be more than there is.
        """
        if self.workspace is not None and self.workspace.size_bytes != size_bytes:
            old, self.workspace = self.workspace, None
            self._give_back(old)
        if size_bytes and self.workspace is None:
            self.workspace = self.buffer(size_bytes)
        return self.workspace

    def fits_timing(self, size_bytes: int) -> bool:
        """Whether the scratch memory for timing is large enough."""
        return size_bytes == 0 or (
            self.timing_workspace is not None and self.timing_workspace.size_bytes >= size_bytes
        )

    def ample_workspace(self, size_bytes: int) -> int:
        """Scratch memory for timing, shared by all kernels: it only grows. Its address, or 0."""
        if not self.fits_timing(size_bytes):
            if self.timing_workspace is not None:
                old, self.timing_workspace = self.timing_workspace, None
                self._give_back(old)
            self.timing_workspace = self.buffer(size_bytes)
        return self.timing_workspace.address if size_bytes and self.timing_workspace is not None else 0

    def _give_back(self, buffer: Buffer) -> None:
        self._buffers.remove(buffer)
        buffer.close()

    def close(self) -> None:
        self._driver.synchronize()
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()


class GpuDevice:
    """See tile_oracle.target.base.Device.

    After a fault that leaves the device unusable the process ends: a new one can use it again.
    """

    def __init__(
        self,
        driver: Driver,
        work: Path,
        compute_units: int = 0,
        cache_bytes: int = 0,
        reader: StateReader | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`work`: the binary of kernels/gpu/device_work.hpp. `compute_units`: for drivers that do not say.

        `cache_bytes`: of all caches, for cold_cache. `reader`: of clocks and temperature, or None.
        `limits`: no kernel is faster.
        """
        self._driver = driver
        properties = driver.properties()
        self.info = DeviceInfo(properties.name, properties.driver)
        self.kernel_seconds = self.timed_ms = 0.0
        self.limits = limits or Limits()
        self.cold_cache = False
        self._flush_bytes = max(_LEAST_FLUSH_BYTES, 2 * cache_bytes)
        self._flush = 0
        self._flip_took_ns: float | None = None
        self._watch = StateWatch(reader)
        self._units = properties.compute_units or compute_units
        self._lock = GpuLock(properties.identity)
        self._work = DeviceWork(driver, work)
        self._kernels: dict[Path, LoadedKernel] = {}
        self._timers: dict[Path, _Timer] = {}
        self._events: list[int] = []
        self._loaded: _Loaded | None = None

    def load(self, problem: Problem, seed: int) -> None:
        try:
            self._unload()
            self._refuse_unless_there_is(_memory_needed_bytes(problem), "data and reference")
            self.claim()
            self._loaded = _Loaded(self._driver, self._work, problem, seed)
        except RuntimeFailure as failure:
            self._end_if_sticky(failure)
            raise ProblemRefused(f"the device cannot prepare it: {failure}") from None

    def claim(self) -> None:
        self._lock.acquire()

    def idle(self) -> None:
        self._lock.release()

    def check(self, binary: Path) -> CheckResult:
        loaded = self._require()
        return self._launched(loaded.problem, binary, partial(self._check, loaded))

    def apply(self, problem: Problem, binary: Path, data: DataFiles) -> CheckResult:
        self._refuse_unless_there_is(problem.bytes + 8 * GUARD_BYTES, "the data")
        buffers: list[Buffer] = []
        try:
            return self._launched(problem, binary, partial(self._apply, problem, data, buffers))
        finally:
            for buffer in buffers:
                buffer.close()

    def _launched(
        self,
        problem: Problem,
        binary: Path,
        run: Callable[[LoadedKernel, Run], CheckResult],
    ) -> CheckResult:
        """What `run` says, or why the kernel cannot be loaded or launched."""
        try:
            kernel = self._kernel(binary)
            plan = kernel.plan(problem)
        except (RuntimeFailure, ValueError, OSError) as error:
            self._end_if_sticky(error)
            return CheckResult("build_error", f"cannot be loaded: {error}")
        except Unlaunchable as error:
            return CheckResult("unsupported", str(error))
        try:
            return run(kernel, plan)
        except RuntimeFailure as failure:
            self._end_if_sticky(failure)
            return CheckResult("unsupported", f"cannot be launched with {plan.needs}: {failure}")

    def _apply(
        self,
        problem: Problem,
        data: DataFiles,
        buffers: list[Buffer],
        kernel: LoadedKernel,
        plan: Run,
    ) -> CheckResult:
        def buffer(size_bytes: int, guard: int = GUARD_BYTE) -> Buffer:
            buffers.append(Buffer(self._driver, size_bytes, guard))
            return buffers[-1]

        storage, result_storage = STORAGE[problem.dtype], STORAGE[problem.result_dtype]
        given = [path.read_bytes() for path in (data.first, data.second)]
        operands = [buffer(len(values), POISON_BYTE) for values in given]
        for operand, values in zip(operands, given, strict=True):
            self._driver.copy_in(operand.address, values)
        out = buffer(math.prod(problem.operand_shapes[2]) * result_storage.itemsize)
        workspace = buffer(plan.workspace_bytes) if plan.workspace_bytes else None
        launches = _launches(plan, operands, out, _address(workspace))
        self._run_once(launches, out, workspace)
        failure = _beside(self._work.find(problem, out, workspace, 0))
        if failure is not None:
            return failure
        result = self._driver.copy_out(out.address, out.size_bytes)
        missing = unwritten(np.frombuffer(result, result_storage))
        # A NaN that the caller put in may come out as any NaN.
        if missing and not any(nan_count(np.frombuffer(v, storage), problem.dtype) for v in given):
            return CheckResult("wrong", missing)
        data.out.write_bytes(result)
        return CheckResult("ok")

    def _run_once(self, launches: Launches, out: Buffer, workspace: Buffer | None) -> None:
        """Run over a poisoned output, and wait for the end."""
        began = time.monotonic()
        try:
            self._start(launches, out, workspace)
            self._driver.synchronize()
        finally:
            self.kernel_seconds += time.monotonic() - began

    def _start(self, launches: Launches, out: Buffer, workspace: Buffer | None) -> None:
        """Start a run over a poisoned output."""
        out.poison()
        if workspace is not None:
            workspace.poison()
        for launch in launches:
            self._driver.launch(launch)

    def _refuse_unless_there_is(self, needed_bytes: int, what_for: str) -> None:
        there = self._driver.free_memory_bytes()
        if needed_bytes > _MEMORY_SHARE * there:
            raise ProblemRefused(
                f"needs {needed_bytes / 2**30:.1f} GiB of device memory for {what_for}, "
                f"{there / 2**30:.1f} GiB are free"
            )

    def _check(self, loaded: _Loaded, kernel: LoadedKernel, plan: Run) -> CheckResult:
        workspace, problem = loaded.exact_workspace(plan.workspace_bytes), loaded.problem
        count = math.prod(problem.operand_shapes[2])
        launches = [
            _launches(plan, checked.inputs, checked.out, _address(workspace)) for checked in loaded.sets
        ]
        found = self._run_on_all_sets(loaded, launches, workspace)
        for number, checked in enumerate(loaded.sets):

            def run(number: int = number, checked: _Set = checked) -> Findings:
                self._run_once(launches[number], checked.out, workspace)
                address = checked.expected.address
                return self._work.find(problem, checked.out, workspace, address, checked.sample)

            failure = _beside(found[number])
            if failure is not None:
                return replace(failure, kind="full", points=count)
            first = found[number].verdict
            if first.wrong:
                # Later sets may have written over this result: the one that is explained is a new one.
                again = run()
                wrong = self._explain(loaded, checked, again.verdict if again.verdict.wrong else first)
                if number:
                    wrong += f" ({checked.pattern.name}; data {checked.where})"
                runs = chain([again], _repeated(run))
                return replace(_wrong_or_flaky(wrong, first, runs), kind="full", points=count)
        return CheckResult("ok", "", "full", count, facts=self._facts(kernel))

    def _run_on_all_sets(
        self, loaded: _Loaded, launches: Sequence[Launches], workspace: Buffer | None
    ) -> list[Findings]:
        """What a run on each set of operands leaves; the device is waited for once."""
        began = time.monotonic()
        try:
            self._work.begin_looks()
            for checked, one in zip(loaded.sets, launches, strict=True):
                self._start(one, checked.out, workspace)
                address = checked.expected.address
                self._work.look(loaded.problem, checked.out, workspace, address, checked.sample)
            return self._work.end_looks()
        finally:
            self.kernel_seconds += time.monotonic() - began

    def sample(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        loaded = self._require()
        try:
            timer = self._timers.get(binary) or self._make_timer(binary)
            if timer.batches % 2 == 0:
                loaded.renew()
            timer.batches += 1
            began = time.monotonic()
            wanted = max(math.ceil(count / timer.repeats), min(count, _LEAST_VALUES))
            taken = self._time(timer, wanted)
            self.kernel_seconds += time.monotonic() - began
        except RuntimeFailure as failure:
            self._end_if_sticky(failure)
            raise KernelFailed(f"failed when it was timed: {failure}") from None
        ordered = np.sort(taken)  # np.median itself takes longer than many kernels
        usual = float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        if timer.changed_ns > _CHANGED_AT_MOST * usual + _CHANGED_SLACK_NS:
            raise KernelFailed(
                f"a run takes {timer.changed_ns / 1e3:.0f} us when an operand changed before it, and "
                f"{usual / 1e3:.0f} us when none did: it does not do its work again"
            )
        return taken

    def verify(self, binary: Path) -> CheckResult:
        loaded, timer = self._require(), self._timers[binary]
        timed, problem = loaded.sets[0], loaded.problem
        try:
            found = self._work.find(problem, timed.out, None, timed.expected.address)
            failure = _beside(found)
            if failure is not None:
                return replace(failure, detail=f"{failure.detail} when it was timed")
            if not found.verdict.wrong:
                return CheckResult("ok")
            wrong = f"when it was timed, {self._explain(loaded, timed, found.verdict)}"

            def run() -> Findings:
                timed.out.poison()
                for launch in timer.launches:
                    self._driver.launch(launch)
                return self._work.find(problem, timed.out, None, timed.expected.address)

            alone = run().verdict
            result = _wrong_or_flaky(wrong, alone, _repeated(run))
            if result.status == "wrong" and not alone.wrong:
                return replace(result, detail=f"{wrong}; right when it runs alone")
            return result
        except RuntimeFailure as failure:
            self._end_if_sticky(failure)
            return CheckResult("wrong", f"failed when it was timed: {failure}")

    def state(self) -> DeviceState:
        return self._watch.take()

    # ---- kernels ------------------------------------------------------------------------------

    def _facts(self, kernel: LoadedKernel) -> Mapping[str, int]:
        """What the driver made of the kernel; nothing where it does not say."""
        try:
            return kernel.facts()
        except (RuntimeFailure, RuntimeMissing) as error:
            self._end_if_sticky(error)
            return {}

    def _kernel(self, binary: Path) -> LoadedKernel:
        kernel = self._kernels.get(binary)
        if kernel is None:
            if len(self._kernels) >= _MOST_MODULES:
                self._forget_kernels()
            kernel = self._kernels[binary] = load_kernel(self._driver, binary, self._units)
        return kernel

    def _make_timer(self, binary: Path) -> _Timer:
        """Looks how long the kernel runs, roughly, and how it is therefore timed."""
        loaded = self._require()
        plan = self._kernel(binary).plan(loaded.problem)
        if not loaded.fits_timing(plan.workspace_bytes):
            self._forget_timers()  # they hold the address of the workspace that is about to go
        scratch = loaded.ample_workspace(plan.workspace_bytes)
        timed = loaded.sets[0]
        launches = _launches(plan, timed.inputs, timed.out, scratch)
        flips = loaded.sign_flips(_FLIPS)
        changed = _Timer((flips[0], *launches), 0, 1)
        rough_ns = float(self._time(changed, 1)[0])
        # After an even number of flips the operand is as before.
        if rough_ns < _LONG_NS:
            rough_ns = min(rough_ns, float(self._time(changed, 3).min()))
        else:
            self._driver.launch(flips[0])
        timer = _Timer(launches, 0, 1, rough_ns)
        # A graph would warm the caches for its own runs.
        if rough_ns < _SHORT_NS and not self.cold_cache:
            runs = tuple(launch for flip in flips for launch in (flip, *launches))
            graph = self._driver.capture(runs, 1)
            several = _Timer(runs, graph, _FLIPS)
            self._time(several, 1)
            short_ns = max(100.0, float(self._time(several, 3).min()) - self._flip_ns(flips))
            self._driver.destroy_graph(graph)
            repeats = max(1, min(_MOST_REPLAYS, math.ceil(_SHORT_NS / short_ns)))
            timer = _Timer(launches, self._driver.capture(launches, repeats), repeats, short_ns)
        self._timers[binary] = timer
        return timer

    def _flip_ns(self, flips: Sequence[Launch]) -> float:
        """What flipping a sign adds to a run in a graph; measured once."""
        if self._flip_took_ns is None:
            graph = self._driver.capture(flips, 1)
            timer = _Timer(tuple(flips), graph, len(flips))
            # Twice the same flips: the operand is as before.
            self._flip_took_ns = float(min(self._time(timer, 1).min(), self._time(timer, 3).min()))
            self._driver.destroy_graph(graph)
        return self._flip_took_ns

    def _time(self, timer: _Timer, count: int) -> npt.NDArray[np.float64]:
        """Nanoseconds of each of `count` runs, or of a run in each of `count` graphs, on average."""
        if self.cold_cache:
            return self._time_cold(timer, count)
        driver, taken = self._driver, list[float]()
        while len(taken) < count:
            runs = min(count - len(taken), _MOST_EVENTS - 1)
            while len(self._events) <= runs:
                self._events.append(driver.make_event())
            driver.record(self._events[0])
            for event in self._events[1 : runs + 1]:
                if timer.graph:
                    driver.launch_graph(timer.graph)
                else:
                    for launch in timer.launches:
                        driver.launch(launch)
                driver.record(event)
            driver.synchronize()
            taken += driver.elapsed_ns(self._events[: runs + 1])
        self.timed_ms += sum(taken) / 1e6
        return np.array(taken) / timer.repeats

    def _time_cold(self, timer: _Timer, count: int) -> npt.NDArray[np.float64]:
        """The same, each run after the caches were filled with something else, which is not timed."""
        driver, taken = self._driver, list[float]()
        if not self._flush:
            self._flush = driver.allocate(self._flush_bytes)
        while len(taken) < count:
            runs = min(count - len(taken), _MOST_EVENTS // 2)
            while len(self._events) < 2 * runs:
                self._events.append(driver.make_event())
            for run in range(runs):
                driver.set_bytes(self._flush, run % 256, self._flush_bytes)
                driver.record(self._events[2 * run])
                for launch in timer.launches:
                    driver.launch(launch)
                driver.record(self._events[2 * run + 1])
            driver.synchronize()
            for run in range(runs):
                taken += driver.elapsed_ns(self._events[2 * run : 2 * run + 2])
        self.timed_ms += sum(taken) / 1e6
        return np.array(taken)

    def _unload(self) -> None:
        self._forget_timers()
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            loaded.close()

    def _forget_timers(self) -> None:
        for timer in self._timers.values():
            if timer.graph:
                self._driver.destroy_graph(timer.graph)
        self._timers.clear()

    def _forget_kernels(self) -> None:
        self._driver.synchronize()
        self._forget_timers()
        for kernel in self._kernels.values():
            kernel.unload()
        self._kernels.clear()

    # ---- the rest -----------------------------------------------------------------------------

    def _require(self) -> _Loaded:
        assert self._loaded is not None, "load() comes first"
        return self._loaded

    def _end_if_sticky(self, error: Exception) -> None:
        if isinstance(error, RuntimeFailure) and error.sticky:
            _end(error)

    def _value(self, problem: Problem, address: int, index: int) -> float:
        stored = np.frombuffer(self._work.value(problem, address, index), STORAGE[problem.result_dtype])
        return float(decode(stored, problem.result_dtype)[0])

    def _explain(self, loaded: _Loaded, checked: _Set, verdict: Verdict) -> str:
        problem = loaded.problem
        shape = problem.operand_shapes[2]
        at = verdict.first or 0
        count = math.prod(shape)
        got = self._value(problem, checked.out.address, at)
        text = f"got {got:g}"
        if checked.sample is None or count <= checked.sample:
            text += f", exact {self._value(problem, checked.expected.address, at):g}"
        else:
            count = checked.sample
        where = ", ".join(str(int(i)) for i in np.unravel_index(at, shape))
        text = f"{verdict.wrong:,} of {count:,} values wrong, at ({where}) {text}"
        if verdict.unwritten:
            text += f"; left {verdict.unwritten:,} of {count:,} values unwritten"
        if verdict.nan:
            text += f"; {verdict.nan:,} of {count:,} values are NaN"
        return text


def _beside(found: Findings) -> CheckResult | None:
    """Of a kernel that wrote beside its memory."""
    for name, damaged in (("output", found.beside_output), ("workspace", found.beside_workspace)):
        if damaged:
            return CheckResult("wrong", f"wrote {damaged:,} bytes beside its {name}", tainted=True)
    return None


def _repeated(run: Callable[[], Findings]) -> Iterator[Findings]:
    """Enough runs to see that a kernel is flaky, each made when it is asked for."""
    return (run() for _ in range(_RUNS_TO_SEE_FLAKINESS))


def _wrong_or_flaky(wrong: str, first: Verdict, again: Iterable[Findings]) -> CheckResult:
    """A wrong result is `flaky` if another run on the same data is wrong in another way, or right."""
    for found in again:
        failure = _beside(found)
        if failure is not None:
            return failure
        if found.verdict != first:
            return CheckResult("flaky", f"another result each time from the same data: {wrong}")
    return CheckResult("wrong", wrong)


def _address(workspace: Buffer | None) -> int:
    return 0 if workspace is None else workspace.address


def _launches(plan: Run, inputs: Sequence[Buffer], out: Buffer, scratch: int) -> Launches:
    first, second = (operand.address for operand in inputs)
    return plan.launches(first, second, out.address, scratch)


def _end(failure: RuntimeFailure) -> NoReturn:
    """Nothing in this process can use the device any more: say why on standard error, and end."""
    print(failure, file=sys.stderr, flush=True)
    os._exit(_EXIT_AFTER_FAULT)


def _memory_needed_bytes(problem: Problem) -> int:
    """Operands, outputs and what these must be of up to three sets, and their guard zones."""
    sets = 1 + len(mantissa(problem))
    return sets * problem.bytes + 4 * sets * _SAMPLE + 16 * GUARD_BYTES + operand_bytes(problem)[2]
