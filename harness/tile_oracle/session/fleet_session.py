"""A session that builds here and measures on the devices of a fleet."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from tile_oracle.fleet.builds import Builds
from tile_oracle.fleet.driver import Again, FleetDriver, FleetTask, NotBegunError, Questions
from tile_oracle.fleet.fleet_file import FLEET_FILE, add_session
from tile_oracle.fleet.messages import DeviceSettings, Result
from tile_oracle.fleet.progress import ASIDE
from tile_oracle.fleet.ray_engine import RayEngine, import_ray
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.leaders import choose_leaders
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.row import from_known
from tile_oracle.measure.twins import copies_among
from tile_oracle.pages.words import count
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.journal_line import encode_line
from tile_oracle.record.run import RunLog
from tile_oracle.record.schema import COLD, ROUND_FINAL, WARM
from tile_oracle.session.expected_time import expected_times
from tile_oracle.session.live import LiveSession
from tile_oracle.session.models import Picks, picks_of
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import without
from tile_oracle.targets import TargetOptions
from tile_oracle.version import __version__

_CALIBRATION_KERNELS = 4


class FleetSession(LiveSession):
    """Collects, plans, builds, records and judges in this process; devices measure in theirs."""

    def __init__(self, options: SessionOptions, **process: Any) -> None:
        """process: see Session. Raises HarnessError."""
        import_ray()  # before anything is written
        super().__init__(options, **process)
        self._driver: FleetDriver | None = None
        self._engine: RayEngine | None = None
        self._picks: Picks | None = None

    def _target_options(self, options: SessionOptions) -> TargetOptions:
        return replace(super()._target_options(options), elsewhere=True)

    # ---- measuring --------------------------------------------------------------------------------------

    def build_ahead(self) -> None:
        """Starts the fleet: the kernels compile in the background, and devices begin as soon as they can."""
        if self._driver is None:
            self._start()

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        self.build_ahead()
        assert self._driver is not None
        try:
            result, resumed = self._driver.result(problem, kernel)
        except NotBegunError as error:
            self.budget_spent = True
            pytest.skip(str(error))
        return self._with_known_failure(result.measurement(problem, kernel, resumed=resumed))

    def over_budget(self, problem: Problem) -> bool:
        if self.deadline is None or time.monotonic() < self.deadline or self._driver is None:
            return super().over_budget(problem)
        self._driver.stop_new()
        if self._driver.begun(problem.id):
            return False
        self.budget_spent = True
        return True

    def remeasure(self, problem: Problem, timed: Sequence[Measurement], round_: int) -> None:
        self.remeasure_all([(problem, timed, round_)], float("inf"))

    def remeasure_all(
        self, jobs: Sequence[tuple[Problem, Sequence[Measurement], int]], ends_s: float
    ) -> list[Problem]:
        self.build_ahead()
        assert self._driver is not None
        asked = [
            Again(
                problem,
                [(one.kernel.name, Result.of(one)) for one in timed],
                self._driver.known(problem.id),
                round_,
            )
            for problem, timed, round_ in jobs
        ]
        return [job.problem for job in self._driver.again(asked, ends_s)]

    # ---- the start --------------------------------------------------------------------------------------

    def _start(self) -> None:
        run = self.open_run()
        assert self.options.fleet is not None
        self._log = RunLog(run, self._writer())
        options = replace(super()._target_options(self.options), jobs=1)
        settings = DeviceSettings(
            self.target.name,
            options,
            self._settings,
            run.name,
            self.keep_samples,
            tuple(self.offers.values()),
            tuple(problem.id for problem in self.plan.problems),
        )
        builder = self.target.builder
        self._engine = RayEngine(
            self.options.fleet,
            settings,
            self.target.arch,
            self.options.fleet_devices,
            "" if builder is None else str(builder.cache.folder),
        )
        self._driver = FleetDriver(
            self._engine,
            Builds(self.target, self._engine.ship, self._engine.compilers(self.target.source_identity())),
            self._log,
            Questions(self._picks_of, self._blamed),
            match=self.options.fleet_match,
            in_order=self.deadline is not None,
            deadline=self.deadline,
            calibration=self._calibration(),
        )
        self._driver.on_wait = self.show
        self._driver.start(self._tasks())

    def _tasks(self) -> Iterable[FleetTask]:
        """Every problem with its kernels, and what earlier sessions have measured of it."""
        assert self._log is not None
        counts = {problem: len(kernels) for problem, kernels in self._kernels_of.items()}
        times = expected_times(counts, self.run)
        resumed = self.run is not None and self.run.resumed
        for name, kernels in self._kernels_of.items():
            problem = problem_from_id(name)
            known = [
                from_known(problem, parse_kernel_name(row["kernel"]), row)
                for row in (self._log.known(name) if resumed else ())
                if row["status"] != "device_lost"
            ]
            yield FleetTask(
                problem,
                kernels,
                times.get(name, 1.0),
                [(one.kernel.name, Result.of(one)) for one in known],
                complete=self._has_leaders(problem, known),
            )

    def _calibration(self) -> tuple[Problem, Sequence[Kernel]] | None:
        """The problem of median size, and some of its kernels; None if nothing is to be measured."""
        problems = sorted(map(problem_from_id, self._kernels_of), key=lambda one: (one.flops, one.id))
        if not problems:
            return None
        problem = problems[len(problems) // 2]
        able = [k for k in self._kernels_of[problem.id] if self.target.refusal(k, problem) is None]
        step = max(1, len(able) // _CALIBRATION_KERNELS)
        return (problem, able[::step][:_CALIBRATION_KERNELS]) if able else None

    def _has_leaders(self, problem: Problem, known: Sequence[Measurement]) -> bool:
        """Whether the leaders of a problem whose kernels are all known have been measured again."""
        swept = [one for one in known if one.round < ROUND_FINAL]
        done = {one.kernel for one in known if one.round >= ROUND_FINAL}
        copies = copies_among(swept)
        own = [one for one in swept if one.kernel not in copies]
        if not swept:
            return False
        leaders = [one for one in choose_leaders(own, (), self._settings) if one.kernel not in done]
        return not leaders or (len(leaders) + len(done) < 2 and leaders[0].status != "noisy")

    # ---- what the driver asks ---------------------------------------------------------------------------

    def _picks_of(self, problem: Problem) -> Collection[Kernel]:
        if self._picks is None:
            assert self._driver is not None
            self._learn_known_failures(self._driver.kind)
            self._picks = picks_of(self.pickers, without(self.plan, self.lacking()), self._held, self.target)
        return self._picks(problem)

    def _blamed(self, problem: Problem, kernel: Kernel, deaths: int) -> tuple[Result, bytes]:
        why = f"{deaths} devices died while it ran alone: it is not run again"
        measurement = Measurement(problem, kernel, "crash", why)
        assert self._driver is not None
        assert self.run is not None
        row = {
            "run": self.run.name,
            "time": datetime.now(UTC).isoformat(),
            "harness_version": __version__,
            **measurement.as_row(),
            "target": self.target.name,
            "arch": self.target.arch,
            "implementation": self.target.owner(kernel).implementation,
            "device": self._driver.kind,
            "seed": self._settings.seed,
            "cache": COLD if self._settings.cold_cache else WARM,
        }
        return Result.of(measurement), encode_line(row)

    # ---- the end ----------------------------------------------------------------------------------------

    def close(self, *, interrupted: bool) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            self._fleet_notes = driver.all_notes()
            self._conditions = _conditions(driver)
            driver.close()
            self._save(driver)
        super().close(interrupted=interrupted)

    _fleet_notes: Sequence[str] = ()
    _conditions: Mapping[str, str] = MappingProxyType({})

    def conditions(self) -> dict[str, str]:
        return dict(self._conditions if self._driver is None else _conditions(self._driver))

    def _save(self, driver: FleetDriver) -> None:
        """Adds this session's devices to the run's fleet.json. Raises RecordError."""
        if self.run is not None and self.run.folder.is_dir():
            path = self.run.folder / FLEET_FILE
            add_session(path, driver.progress.devices.values(), driver.health, driver.places)

    def header(self) -> list[str]:
        where = "this machine" if self.options.fleet == "local" else f"Ray at {self.options.fleet}"
        of_kind = f", devices {self.options.fleet_match}" if self.options.fleet_match else ""
        return [*super().header(), f"fleet: {where}{of_kind}"]

    @property
    def notes(self) -> list[str]:
        return [*super().notes, *self._fleet_notes]


def _conditions(driver: FleetDriver) -> dict[str, str]:
    """The fleet in words, for the report."""
    devices = [one for one in driver.progress.devices.values() if one.joined]
    if not devices:
        return {}
    hosts = {one.host for one in devices}
    found = {"fleet": f"{count(len(devices), 'device')} on {count(len(hosts), 'machine')}"}
    if aside := [one for one in devices if one.state == ASIDE]:
        found["fleet, set aside"] = "; ".join(f"{one.name}: {one.why}" for one in aside)
    for one in driver.health.spreads():
        found[f"fleet, {one.kind}"] = (
            f"times of the calibration kernels differ by {one.percent:.1f} % over {one.devices} devices "
            f"(fastest {one.fastest}, slowest {one.slowest})"
        )
    return found
