"""A session that builds and measures."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.compiling.kernel_source import NATIVE
from tile_oracle.errors import HarnessError, NotBegunError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.libraries.algorithms import Algorithms
from tile_oracle.libraries.ask import ask_library
from tile_oracle.libraries.offers import Offers, load_offers, offers_file, save_offers
from tile_oracle.measure.assignments import DeviceSettings
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.device_progress import DeviceProgress
from tile_oracle.measure.driver import Driver, ProblemTask
from tile_oracle.measure.engine import Engine
from tile_oracle.measure.host_devices import HostDevices
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.own_device import OwnDevice
from tile_oracle.measure.row import row_of
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.pages.words import count
from tile_oracle.problem import Kind, Problem, problem_from_id
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.record.run import Run, RunLog
from tile_oracle.session.asked_devices import ALL
from tile_oracle.session.items import SUITE
from tile_oracle.session.models import Picks, picks_of
from tile_oracle.session.options import AUTO_SAMPLING, SEQUENTIAL, SessionOptions
from tile_oracle.session.plan import Plan, make_plan, rankings_of, without
from tile_oracle.session.session import Session
from tile_oracle.session.time_left import expected_times
from tile_oracle.targets import TargetOptions, resolve_target
from tile_oracle.targets.base import DeviceInfo
from tile_oracle.targets.target import Target

if TYPE_CHECKING:
    from tile_oracle.session.first import First

_COLD_SAMPLES, _COLD_BATCH = 50, 10
_NEVER = 1e9
"""Times as slow as the best is no kernel."""
_SPLIT_S, _SPLIT_ON_CLUSTER_S = 1.0, 3.0
"""Least seconds of work that an idle device takes half of: of this host, of a cluster."""
_LONGER = ("--settle-budget", "10m")
_MORE_BUDGET = ("--budget", "1h")


class LiveSession(Session):
    """Builds each problem's kernels, and has them run, checked, timed and recorded on devices."""

    suite = SUITE
    remeasures = True

    def __init__(self, options: SessionOptions, **process: Any) -> None:
        """process: see Session. Raises HarnessError."""
        target, reason = resolve_target(options.target, self._target_options(options))
        devices = target.devices if process.get("devices") == ALL else process.get("devices")
        process["devices"] = None if devices == 1 and not options.on_cluster else devices
        self.offers = self._offers(options, target, process.get("run_folder"))
        target.sources += [Algorithms(one, target.arch) for one in self.offers.values()]
        super().__init__(options, target, reason, **process)
        self._driver: Driver | None = None
        self.in_turn = self.devices is None and not options.on_cluster
        self._first: First | None = None
        """The kernels of --first, while only they are measured."""
        self._closing = ExitStack()
        self._log: RunLog | None = None

    @property
    def _joined(self) -> list[DeviceProgress]:
        there = [] if self._driver is None else self._driver.progress.devices.values()
        return [one for one in there if one.joined]

    @property
    def workers(self) -> int:
        return len(self._joined) or self.devices or 1

    def conditions(self) -> dict[str, str]:
        devices = self._joined
        if self.in_turn or not devices:
            return {}
        machines = len({one.host for one in devices})
        return {"devices": f"{count(len(devices), 'device')} on {count(machines, 'machine')}"}

    def devices_line(self) -> str:
        return "" if self.in_turn or self._driver is None else self._driver.progress.line()

    def _target_options(self, options: SessionOptions) -> TargetOptions:
        return TargetOptions(
            options.toolchain,
            options.build_dir,
            options.build_jobs,
            options.isa,
            options.kernels.sources or (NATIVE,),
            elsewhere=options.on_cluster,
        )

    def _offers(self, options: SessionOptions, target: Target, folder: str | None) -> dict[str, Offers]:
        """Returns what the libraries of --kernels offer: asked now, or read from the controller's run
        folder."""
        libraries = options.kernels.libraries
        if not libraries:
            return {}
        if folder is not None:
            files = [offers_file(Path(folder), library.name) for library, _ in libraries]
            return {one.library: one for one in map(load_offers, files)}
        for library, _ in libraries:
            if target.arch not in library.archs:
                archs = " or ".join(library.archs)
                raise TargetError(f"--kernels {library.name} is for --target {archs}, not for {target.name}")
        problems = load_problem_sets(options.problem_set or "").problems
        return {
            library.name: ask_library(
                library,
                path,
                [problem for problem in problems if library.takes(problem, target.arch)],
                options.library_algorithms,
                target.device_options(),
            )
            for library, path in libraries
        }

    def _make_plan(self) -> Plan:
        sets = load_problem_sets(self.options.problem_set or "")
        offered = {
            problem.id: tuple(kernel for one in self.offers.values() for kernel in one.kernels(problem))
            for problem in sets.problems
        }
        rankings = rankings_of(self.offers.values(), sets.problems)
        plan = make_plan(
            self.options,
            self.target.arch,
            sets,
            None,
            offered,
            rankings,
            sources=[one.kernels for one in self.target.compiled] if self.options.kernels.sources else [],
        )
        return replace(plan, notes=(*plan.notes, *(one.describe() for one in self.offers.values())))

    def open_run(self) -> Run:
        opened, run = self.run is not None, super().open_run()
        if not opened:
            for one in self.offers.values():
                save_offers(run.folder, one)
        return run

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        return self.with_known_failure(self.driver().measure(problem, kernel))

    def driver(self) -> Driver:
        """Returns what measures, begun at the first call. Raises HarnessError."""
        if self._driver is None:
            run = self.open_run()
            self._log = RunLog(run, f"main-{os.getpid()}-{time.time_ns() // 1_000_000 % 10**9}")
            self._closing.callback(self._log.close)
            driver = self._driver = self._open_driver(run, self._log)
            self._closing.callback(driver.abandon)
            driver.start(self._tasks())
        return self._driver

    def goes_on(self, problem: Problem, kernel: Kernel) -> bool:
        if self._driver is None:
            return False
        try:
            self._driver.measure(problem, kernel)
        except HarnessError as error:
            return not isinstance(error, NotBegunError)  # its test says why
        return True

    @cached_property
    def lacking(self) -> frozenset[str]:
        problems: dict[Kind, list[Problem]] = {}
        for problem in self.plan.problems:
            problems.setdefault(problem.kind, []).append(problem)
        return frozenset(
            kernel.name
            for kind, pool in self.plan.pools.items()
            for kernel in pool
            # The project's own families lack no kernel of their pools.
            if (source := self.target.owner(kernel)).implementation != NATIVE
            and all(source.refusal(kernel, problem) is not None for problem in problems.get(kind, ()))
        )

    @cached_property
    def _settings(self) -> SweepSettings:
        settings = SweepSettings()
        timing = TimingPlan(
            budget_ms=1000 * self.options.kernel_budget_s,
            exact_samples=self.options.samples,
            sequential=self._samples_sequentially,
            leaders_within=settings.leaders_within,
            far_behind=self.options.far_behind or _NEVER,
        )
        if self.options.cold_cache:
            # Flushing the caches takes far longer than a short kernel and is not part of its budget.
            timing = replace(timing, max_samples=_COLD_SAMPLES, max_batch=_COLD_BATCH)
            settings = replace(settings, final_samples=_COLD_BATCH)
        return replace(
            settings,
            timing=timing,
            seed=self.options.data_seed,
            timeout_s=self.options.kernel_timeout_s,
            final_budget_ms=timing.budget_ms / 5,
            cold_cache=self.options.cold_cache,
            keep_samples=self.keep_samples,
        )

    @property
    def _samples_sequentially(self) -> bool:
        """On a CPU, other processes disturb whole series of runs: a few samples could hide the fastest."""
        if self.options.sampling == AUTO_SAMPLING:
            return self.target.name != "cpu"
        return self.options.sampling == SEQUENTIAL

    def _open_driver(self, run: Run, log: RunLog) -> Driver:
        engine, builds, split_s = self._open_engine(run)
        return Driver(
            engine,
            builds,
            log,
            self._picks,
            self._row_of,
            self._settings,
            match=self.options.fleet_match,
            in_order=self.in_turn or self.deadline is not None,
            in_turn=self.in_turn,
            deadline=self.deadline,
            split_s=split_s,
        )

    def _open_engine(self, run: Run) -> tuple[Engine, Builds, float]:
        """Returns what runs the devices, their binaries, and the driver's split_s."""
        if self.options.fleet is not None and self.options.on_cluster:
            from tile_oracle.fleet.ray_engine import RayEngine

            settings, arch = replace(self._device_settings(run), journals=""), self.target.arch
            cache = "" if self.target.builder is None else str(self.target.builder.cache.folder)
            ray = RayEngine(self.options.fleet, settings, arch, self.devices, cache)
            return ray, Builds(self.target, ray.ship), _SPLIT_ON_CLUSTER_S
        if self.devices is not None:
            return HostDevices(self._device_settings(run), self.devices), Builds(self.target), _SPLIT_S
        supervisor, builds = Supervisor(self.target, self._settings, run.measurements), Builds(self.target)
        return OwnDevice(supervisor, run.name, builds), builds, _SPLIT_S

    def _device_settings(self, run: Run) -> DeviceSettings:
        """Returns how devices in other processes measure."""
        return DeviceSettings(
            self.target.name,
            replace(self._target_options(self.options), jobs=1, elsewhere=False),
            self._settings,
            run.name,
            tuple(self.offers.values()),
            tuple(problem.id for problem in self.plan.problems),
            str(run.measurements),
        )

    def _row_of(self, measurement: Measurement) -> Mapping[str, Any]:
        assert self._driver is not None
        return row_of(measurement, self.target, self._settings, DeviceInfo(self._driver.kind, ""))

    def _tasks(self) -> Iterable[ProblemTask]:
        counts = {name: len(kernels) for name, kernels in self._kernels_of.items()}
        times = {} if self.in_turn else expected_times(counts)
        for name, kernels in self._kernels_of.items():
            problem = problem_from_id(name)
            first = self._first_of(problem)
            yield ProblemTask(problem, first, times.get(name, 1.0), finals=len(first) == len(kernels))

    def _first_of(self, problem: Problem) -> Sequence[Kernel]:
        """Returns the kernels of a problem that are measured now."""
        planned = self._kernels_of.get(problem.id, ())
        if self._first is None:
            return planned
        return [kernel for kernel in planned if self._first.has((problem, kernel))]

    def _picks(self, device: str) -> Picks:
        """Returns what the models under test pick, once it is known on which device. Raises RecordError for
        another device than that of a resumed run."""
        assert self._log is not None
        self._log.check_device(device)
        self._learn_known_failures(device)
        return picks_of(self.pickers, without(self.plan, self.lacking), self._held, self.target)

    def choose_first(self) -> First | None:
        if self.options.first is None:
            return None
        from tile_oracle.session.first import choose_first

        self._first = choose_first(self, self.options.first)
        return self._first

    def end_first(self) -> list[str]:
        from tile_oracle.session.first import first_verdict

        first, self._first = self._first, None
        if first is None or self._driver is None:
            return []
        self._driver.wait()
        self._driver.start(self._tasks())
        return list(first_verdict(self, first))

    def build_ahead(self) -> None:
        """Starts devices in other processes. For one in this process, starts compiling the kernels of the
        first problems."""
        if not self.in_turn:
            self.driver()
            return
        started = set()
        for problem_id in self._kernels_of if self._first is not None else ():
            for kernel in self._first_of(problem_from_id(problem_id)):
                self.target.build(kernel)
        for problem_id, kernels in self._kernels_of.items():
            problem = problem_from_id(problem_id)
            if problem.kind in started:
                continue
            started.add(problem.kind)
            for kernel in kernels:
                if self.target.refusal(kernel, problem) is None:
                    self.target.build(kernel)

    @cached_property
    def _to_build(self) -> int:
        # The problems of a kind share their kernels' objects, and hashing millions of pairs takes seconds.
        objects = {id(kernel): kernel for kernels in self._kernels_of.values() for kernel in kernels}
        return sum(self.target.owner(kernel).builder is not None for kernel in set(objects.values()))

    def builds(self) -> tuple[int, int]:
        return sum(len(one.builder.ended()) for one in self.target.compiled), self._to_build

    def close(self) -> None:
        """Stop the engine and the compilers and seal the journals. Raises RecordError."""
        try:
            # First, so that a kill during the rest leaves no unsealed journal.
            self._closing.close()
        finally:
            self.target.close()

    def header(self) -> list[str]:
        how = "; ".join(dict.fromkeys(one.builder.describe() for one in self.target.compiled))
        lines = [f"{self.target_line}, {how}"]
        if self.options.on_cluster:
            of_kind = f", devices {self.options.fleet_match}" if self.options.fleet_match else ""
            lines.append(f"fleet: Ray at {self.options.fleet}{of_kind}")
        if self.devices is not None:
            lines.append(f"devices: {self.devices}, each with a process of its own")
        return [*lines, *self._forecast()]

    def _forecast(self) -> list[str]:
        """Returns how long a long session may take, and what is shorter."""
        if self.options.resume or self.options.on_cluster:
            return []
        from tile_oracle.session.forecast import LONG_S, forecast

        options = self.options
        problems = [(problem, len(self.plan.asked(problem))) for problem in self.plan.problems]
        found = forecast(problems, self.target, options.report_dir).of(self.workers)
        if min(found.most_s, options.budget_s or found.most_s) < LONG_S:
            return []
        ways = (
            ("--first 16 (a verdict on the best first)", options.first is None and self.workers == 1),
            ("--budget 10m", options.budget_s is None),
            ("--kernel-set tiny", options.kernels.pool_name == "" and options.kernel_set != "tiny"),
            ("--target replay (recorded measurements)", self.is_judged),
        )
        shorter = ", ".join(way for way, fits in ways if fits)
        return [f"{found.describe()}, compilers not counted; shorter: {shorter}"]

    def settling_command(self, run: Run, suspects: Path) -> str:
        # The session's own options: without its folders and kernels, run and baseline would not be found.
        longer = (*_LONGER, *(() if self.options.budget_s is None else _MORE_BUDGET))
        return self.command.settling(run.name, longer)

    @property
    def notes(self) -> list[str]:
        of_builds = (note for one in self.target.compiled for note in one.builder.notes)
        return [*super().notes, *of_builds, *(() if self._driver is None else self._driver.all_notes())]
