"""A GPU as a device, over HIP or CUDA. Only a worker process imports this."""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from tile_oracle.arch import load_arch
from tile_oracle.arch.time_bound import Limits, gpu_limits
from tile_oracle.device.base import CheckResult, Device, KernelFailed, ProblemRefused, refuse_unless_there_is
from tile_oracle.device.data_maker import taken
from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.gpu_data import GpuData, OperandSet
from tile_oracle.device.gpu_timer import CHANGES, GpuTimer, Timed
from tile_oracle.device.gpu_verdict import beside, explain, repeated, wrong_or_flaky
from tile_oracle.device.gpu_work import Buffer, DeviceWork, Findings
from tile_oracle.device.loaded_kernel import load_kernel
from tile_oracle.device.loaded_run import Launches, LoadedKernel, Run
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.device.runtime.driver import Driver, RuntimeFailure, RuntimeMissing
from tile_oracle.device.runtime.hip import open_hip
from tile_oracle.device.timing import at_least_ms
from tile_oracle.device.turn_lock import GpuLock
from tile_oracle.errors import TargetError
from tile_oracle.operation.on_device import on_gpu
from tile_oracle.problem import Problem
from tile_oracle.targets.base import DeviceInfo
from tile_oracle.targets.device_state import DeviceState, StateReader, StateWatch, open_reader

_MEMORY_SHARE = 0.9
_MOST_MODULES = 2048
"""More than the 2D and 3D pools of one direction together, so a set that mixes them loads each kernel
once."""
_LEAST_VALUES = 8
"""Least number of graphs to time, if as many runs are wanted: the median of two means would be too
imprecise."""
_EXIT_AFTER_FAULT = 70
_CHANGED_AT_MOST, _CHANGED_SLACK_NS = 4.0, 20_000.0
"""Allowed factor and slack of a run after an operand changed, over the usual time. Refilled caches and slowly
rising clocks make such a run slower."""
_LOOKS = 3
"""How many times a slow run after a change must be seen before the kernel is accused of caching its
result."""


_CLOCKS_NS, _CLOCKS_SHARE, _CLOCKS_SLACK_NS = 1_000_000.0, 0.02, 15_000.0
"""How long runs are timed by two clocks, and how much these may differ. The timer's span holds the launches
of two more kernels."""
_DRAWN_AMONG = 5
"""A run whose result is compared follows fewer others than this."""


class GpuDevice(Device):
    """See tile_oracle.device.base.Device.

    After a fault that leaves the device unusable to this process, the process exits. A new process can use
    the device again.
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
        """`work`: the binary of kernels/gpu/device_work.hpp. `compute_units`: for drivers that do not report
        it.

        `cache_bytes`: total size of the caches, for cold_cache. `reader`: reads clocks and temperature, or
        None. `limits`: the roofline, which no kernel can beat.
        """
        self._driver = driver
        properties = driver.properties()
        self.info = DeviceInfo(properties.name, properties.driver)
        self.kernel_seconds = 0.0
        self.limits = limits or Limits()
        self._timer = GpuTimer(driver, cache_bytes)
        self._watch = StateWatch(reader)
        self._units = properties.compute_units or compute_units
        self._lock = GpuLock(properties.identity)
        self._work = DeviceWork(driver, work)
        self._settings = driver.settings()
        self._kernels: dict[Path, LoadedKernel] = {}
        self._timers: dict[Path, Timed] = {}
        self._checked: tuple[Path, list[float]] | None = None
        """The binary checked last, and the nanoseconds of its check runs."""
        self._look: Timed | None = None
        """How the binary checked last is looked at."""
        self._latest: Timed | None = None
        """How the binary checked last was timed last; None: not since its check."""
        self._found: Findings | None = None
        """The findings after the last timed run, if they have been looked at."""
        self._planned: tuple[Path, Problem, Run] | None = None
        self._known_facts: dict[Path, Mapping[str, int]] = {}
        self._loaded: GpuData | None = None
        self._random = random.Random(properties.identity)
        driver.when_lost = _end

    @property
    def cold_cache(self) -> bool:
        return self._timer.cold_cache

    @cold_cache.setter
    def cold_cache(self, cold: bool) -> None:
        self._timer.cold_cache = cold

    @property
    def timed_ms(self) -> float:
        return self._timer.timed_ms

    def load(self, problem: Problem, seed: int, made: str = "") -> None:
        try:
            self._unload()
            part = on_gpu(problem.op)
            needed, there = part.gpu_memory_bytes(problem), self._driver.free_memory_bytes()
            refuse_unless_there_is(needed, _MEMORY_SHARE, there, "device memory for data and reference")
            on_host = taken(made) if made else part.host_data(problem, seed)
            self.claim()
            self._loaded = part.gpu_data(self._driver, self._work, problem, seed, on_host)
        except RuntimeFailure as failure:
            raise ProblemRefused(f"the device cannot prepare it: {failure}") from None

    def claim(self) -> None:
        self._lock.acquire()

    def idle(self) -> None:
        self._lock.release()

    def check(self, binary: Path, lost_ms: float | None = None) -> CheckResult:
        loaded = self._require()
        try:
            kernel = self._kernel(binary)
            plan = self._plan(binary, loaded.problem)
        except OSError as error:
            return CheckResult("device_lost", f"this machine cannot load it: {error}")
        except (RuntimeFailure, ValueError) as error:
            return CheckResult("build_error", f"cannot be loaded: {error}")
        except Unlaunchable as error:
            return CheckResult("unsupported", str(error))
        try:
            return self._check(loaded, binary, lost_ms, kernel, plan)
        except RuntimeFailure as failure:
            return CheckResult("unsupported", f"cannot be launched with {plan.needs}: {failure}")

    def _run_once(self, launches: Launches, out: Buffer, workspace: Buffer | None) -> None:
        """Runs over a poisoned output, and waits until the run has ended."""
        began = time.monotonic()
        try:
            self._start(launches, out, workspace)
            self._driver.synchronize()
        finally:
            self.kernel_seconds += time.monotonic() - began

    def _start(
        self, launches: Launches, out: Buffer, workspace: Buffer | None, marks: tuple[int, int] | None = None
    ) -> float:
        """Starts a run over a poisoned output. marks: numbers of marks before and after it. Returns the
        milliseconds that the host took between the marks."""
        out.poison()
        if workspace is not None:
            workspace.poison()
        began = time.perf_counter()
        if marks is not None:
            self._timer.mark(marks[0])
        self._driver.launch_all(launches)
        if marks is not None:
            self._timer.mark(marks[1])
        return 1e3 * (time.perf_counter() - began)

    def _check(
        self, loaded: GpuData, binary: Path, lost_ms: float | None, kernel: LoadedKernel, plan: Run
    ) -> CheckResult:
        workspace = loaded.exact_workspace(plan.workspace_bytes)
        count = math.prod(loaded.problem.operand_shapes[-1])
        launches = [
            _launches(plan, checked.inputs, checked.out, _address(workspace)) for checked in loaded.sets
        ]
        self._settings.reset_cache()
        self._settings.restored()  # what an earlier kernel that failed has left is not this one's
        # The first run of a kernel that this process has not run before waits until the driver has loaded it.
        found, least_ms = self._run_on_sets(
            loaded, launches, workspace, lost_ms if binary in self._known_facts else None
        )
        self._checked = (binary, self._timer.between_marks_ns(len(found)))
        self._forget_look()
        self._latest = None
        for number, checked in enumerate(loaded.sets[: len(found)]):

            def run(number: int = number, checked: OperandSet = checked) -> Findings:
                self._run_once(launches[number], checked.out, workspace)
                return self._find(checked, workspace)

            failure = beside(found[number])
            if failure is not None:
                return replace(failure, kind="full", points=count)
            first = found[number].verdict
            if first.wrong:
                # Later sets may have overwritten this result: run again to explain it.
                again = run()
                wrong = explain(
                    self._work, loaded.problem, checked, again.verdict if again.verdict.wrong else first
                )
                if number:
                    wrong += f" ({checked.name}; data {checked.where})"
                runs = chain([again], repeated(run))
                return replace(wrong_or_flaky(wrong, first, runs), kind="full", points=count)
        right = CheckResult("ok", "", "full", count, facts=self._facts(binary, kernel))
        first_ms = self._checked[1][0] / 1e6
        if len(found) == len(loaded.sets):
            return right
        settings = self.verify(binary)
        if settings.status != "ok":
            return settings
        self._timer.timed_ms += first_ms
        return replace(right, lost_in_ms=first_ms, at_least_ms=least_ms)

    def _run_on_sets(
        self, loaded: GpuData, launches: Sequence[Launches], workspace: Buffer | None, lost_ms: float | None
    ) -> tuple[list[Findings], float]:
        """Runs on each set of operands and checks the results, waiting for the device only once. Returns the
        findings, and the least time that the kernel takes, in ms.

        lost_ms: it waits after the first set, too, and a kernel that has lost by then does not run on the
        others."""
        began, found, least_ms = time.monotonic(), list[Findings](), 0.0
        last = len(launches)
        parts = [(0, last)] if lost_ms is None or last == 1 else [(0, 1), (1, last)]
        started_ms = list[float]()
        try:
            for begin, end in parts:
                self._work.begin_looks()
                for number in range(begin, end):
                    checked = loaded.sets[number]
                    marks = 2 * number, 2 * number + 1
                    started_ms.append(self._start(launches[number], checked.out, workspace, marks))
                    self._work.look(loaded.problem, checked.out, workspace, checked.expected, checked.sample)
                found += self._work.end_looks()
                least_ms = at_least_ms(self._timer.between_marks_ns(1)[0] / 1e6, started_ms[0])
                if lost_ms is not None and least_ms > lost_ms:
                    break
            return found, least_ms
        finally:
            self.kernel_seconds += time.monotonic() - began

    def look(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        if self._checked is None or self._checked[0] != binary:
            return self.sample(binary, count)
        try:
            if self._look is None:
                of_checks = self._timer.of_checks(self._checked[1])
                launches = self._timed_launches(binary)
                self._look = self._timer.for_look(launches, min(self._checked[1]))
                if of_checks:
                    return np.array(of_checks)
            timer = self._latest = self._look
            began = time.monotonic()
            taken = self._timer.look(timer, count, self._require().renew, self._wait_and_find)
            self.kernel_seconds += time.monotonic() - began
        except RuntimeFailure as failure:
            raise KernelFailed(f"failed when it was timed: {failure}") from None
        self.require_right(binary)
        if timer.changed_ns > _CHANGED_AT_MOST * float(np.min(taken)) + _CHANGED_SLACK_NS:
            # It may reuse an earlier result, or the check run was disturbed: `sample` finds out.
            return self.sample(binary, max(count, _LEAST_VALUES))
        return taken

    def _wait_and_find(self) -> None:
        """Compares the output of the last timed run, too, while the device is at it."""
        self._found = self._find(self._require().sets[0])

    def _find(self, checked: OperandSet, workspace: Buffer | None = None) -> Findings:
        problem = self._require().problem
        return self._work.find(problem, checked.out, workspace, checked.expected, checked.sample)

    def _forget_look(self) -> None:
        self._timer.forget(self._look)
        self._look = None

    def sample(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        self._require()
        try:
            timer = self._timers.get(binary) or self._prepare(binary)
            for look in range(_LOOKS):
                if look:
                    # The device may have paused once. Only a delay in every attempt is the kernel's.
                    timer = self._prepare(binary, sure=True)
                taken = self._sample(timer, count)
                ordered = np.sort(taken)  # np.median itself takes longer than many kernels
                usual = float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
                if timer.changed_ns <= _CHANGED_AT_MOST * usual + _CHANGED_SLACK_NS:
                    return taken
        except RuntimeFailure as failure:
            raise KernelFailed(f"failed when it was timed: {failure}") from None
        raise KernelFailed(
            f"a run takes {timer.changed_ns / 1e3:.0f} us when the operands changed before it, and "
            f"{usual / 1e3:.0f} us when none did: it reuses an earlier result"
        )

    def _sample(self, timer: Timed, count: int) -> npt.NDArray[np.float64]:
        self._latest, self._found = timer, None
        self._require().renew()
        began = time.monotonic()
        wanted = max(math.ceil(count / timer.repeats), min(count, _LEAST_VALUES))
        if timer.graph:
            taken = self._timer.time(timer, wanted)
        else:  # whichever run's result is compared
            drawn = 1 + self._random.randrange(wanted)
            taken = self._timer.time(timer, drawn, self._wait_and_find)
            if drawn < wanted:
                taken = np.concatenate([taken, self._timer.time(timer, wanted - drawn)])
        self.kernel_seconds += time.monotonic() - began
        return taken

    def verify(self, binary: Path) -> CheckResult:
        loaded, timer = self._require(), self._latest
        changed = self._settings.restored()
        if changed:
            names = ", ".join(changed)
            return CheckResult("wrong", f"changed {names} for itself and all other kernels", tainted=True)
        if timer is None:
            return CheckResult("ok")  # the check runs were timed
        timed = loaded.sets[0]
        try:
            found = self._found
            if found is None:
                found = self._find(timed)
                if timer is not self._look and not found.verdict.wrong:
                    found = self._drawn_run(timer)
            self._found = found
            failure = beside(found)
            if failure is not None:
                return replace(failure, detail=f"{failure.detail} when it was timed")
            if not found.verdict.wrong:
                return CheckResult("ok")
            wrong = f"when it was timed, {explain(self._work, loaded.problem, timed, found.verdict)}"

            def run() -> Findings:
                timed.out.poison()
                self._driver.launch_all(timer.launches)
                return self._find(timed)

            alone = run().verdict
            result = wrong_or_flaky(wrong, alone, repeated(run))
            if result.status == "wrong" and not alone.wrong:
                return replace(result, detail=f"{wrong}; correct when it runs alone")
            return result
        except RuntimeFailure as failure:
            return CheckResult("wrong", f"failed when it was timed: {failure}")

    def _drawn_run(self, timer: Timed) -> Findings:
        """Returns the findings after one run that follows a drawn number of others, of a kernel that is timed
        in graphs: one that works in some of its runs only leaves a right result in the end, too."""
        loaded = self._require()
        for _ in range(self._random.randrange(min(_DRAWN_AMONG, timer.repeats))):
            self._driver.launch_all(timer.launches)
        loaded.renew()
        self._driver.launch_all(timer.launches)
        return self._find(loaded.sets[0])

    def clocks_differ(self, binary: Path) -> str | None:
        timer = self._timers.get(binary)
        if timer is None:
            return None
        try:
            by_events = self._timer.span_ns(timer, _CLOCKS_NS, self._work.stamp)
            by_timer = self._work.between_stamps_ns()
        except RuntimeFailure as failure:
            return f"failed when the clocks were compared: {failure}"
        if not by_timer or abs(by_timer - by_events) <= _CLOCKS_SHARE * by_events + _CLOCKS_SLACK_NS:
            return None
        return (
            f"its runs took {by_events / 1e3:,.1f} us by the device's events "
            f"and {by_timer / 1e3:,.1f} us by its timer"
        )

    def inputs_changed(self) -> bool:
        if self._loaded is None:
            return False
        try:
            return self._loaded.changed()
        except RuntimeFailure:
            return True

    def state(self) -> DeviceState:
        return self._watch.take()

    # ---- kernels ------------------------------------------------------------------------------

    def _facts(self, binary: Path, kernel: LoadedKernel) -> Mapping[str, int]:
        """Returns the driver's facts about the kernel; empty if it has none."""
        if binary not in self._known_facts:
            try:
                self._known_facts[binary] = kernel.facts()
            except (RuntimeFailure, RuntimeMissing):
                return {}
        return self._known_facts[binary]

    def _plan(self, binary: Path, problem: Problem) -> Run:
        """Returns how a kernel runs the problem; kept for the last kernel. Raises what LoadedKernel.plan
        raises."""
        if self._planned is None or self._planned[:2] != (binary, problem):
            self._planned = (binary, problem, self._kernel(binary).plan(problem))
        return self._planned[2]

    def _kernel(self, binary: Path) -> LoadedKernel:
        kernel = self._kernels.get(binary)
        if kernel is None:
            if len(self._kernels) >= _MOST_MODULES:
                self._forget_kernels()
            kernel = self._kernels[binary] = load_kernel(self._driver, binary, self._units)
        return kernel

    def _timed_launches(self, binary: Path) -> Launches:
        """Returns the launches of a timed run."""
        loaded = self._require()
        plan = self._plan(binary, loaded.problem)
        if not loaded.fits_timing(plan.workspace_bytes):
            self._forget_timers()  # they hold the address of the workspace that is about to be freed
        scratch = loaded.ample_workspace(plan.workspace_bytes)
        timed = loaded.sets[0]
        return _launches(plan, timed.inputs, timed.out, scratch)

    def _prepare(self, binary: Path, *, sure: bool = False) -> Timed:
        loaded = self._require()
        launches = self._timed_launches(binary)
        self._timer.forget(self._timers.pop(binary, None))
        timer = self._timers[binary] = self._timer.prepare(launches, loaded.changes(CHANGES), sure=sure)
        return timer

    def _unload(self) -> None:
        self._checked = None
        self._forget_timers()
        self._timer.forget_changes()
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            loaded.close()

    def _forget_timers(self) -> None:
        self._forget_look()
        self._latest = None
        for timer in self._timers.values():
            self._timer.forget(timer)
        self._timers.clear()

    def _forget_kernels(self) -> None:
        self._driver.synchronize()
        self._forget_timers()
        for kernel in self._kernels.values():
            kernel.unload()
        self._kernels.clear()
        self._planned = None
        self._known_facts.clear()

    # ---- the rest -----------------------------------------------------------------------------

    def _require(self) -> GpuData:
        assert self._loaded is not None, "load() comes first"
        return self._loaded


def open_device(arch: str, work: str, visible: str = "", library: str = "") -> GpuDevice:
    """Opens the device. Only the worker calls it.

    arch: the architecture of the kernels. work: the binary of kernels/gpu/device_work.hpp. visible: value for
    HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, "" to keep the current one. library: path of libamdhip64, ""
    to let the loader find it, as it finds libcuda. Raises TargetError for a GPU that cannot run such code.
    """
    on_amd, hardware = arch.startswith("gfx"), load_arch(arch).hardware
    if visible:
        os.environ["HIP_VISIBLE_DEVICES" if on_amd else "CUDA_VISIBLE_DEVICES"] = visible
    driver = open_hip(library=library or None) if on_amd else open_cuda()
    properties = driver.properties()
    said = f"{properties.name} is {properties.arch}: kernels for {arch} need a"
    if on_amd and properties.arch != arch:
        raise TargetError(f"{said} GPU like {hardware.product}")
    if not on_amd and int(properties.arch.removeprefix("sm_")) < int(arch.removeprefix("sm_")):
        raise TargetError(f"{said} newer GPU")
    # NVIDIA's newer GPUs run this code too, but their limits differ.
    limits = gpu_limits(arch, properties.compute_units) if properties.arch == arch else None
    reader = open_reader("amd" if on_amd else "nvidia", properties.identity)
    return GpuDevice(driver, Path(work), hardware.num_cus, hardware.cache_bytes, reader, limits)


def _address(workspace: Buffer | None) -> int:
    return 0 if workspace is None else workspace.address


def _launches(plan: Run, inputs: Sequence[Buffer], out: Buffer, scratch: int) -> Launches:
    return plan.launches(*(operand.address for operand in inputs), out.address, scratch)


def _end(failure: RuntimeFailure) -> NoReturn:
    """Prints why this process can no longer use the device to standard error, and exits."""
    print(failure, file=sys.stderr, flush=True)
    os._exit(_EXIT_AFTER_FAULT)
