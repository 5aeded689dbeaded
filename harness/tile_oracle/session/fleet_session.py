"""A session that builds here and measures on the devices of a fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tile_oracle.fleet.fleet_file import FLEET_FILE, add_session
from tile_oracle.fleet.ray_engine import RayEngine, import_ray
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.device_progress import ASIDE
from tile_oracle.measure.driver import Driver
from tile_oracle.measure.engine import Engine
from tile_oracle.measure.host_devices import HostDevices
from tile_oracle.pages.words import count
from tile_oracle.record.run import Run, RunLog
from tile_oracle.session.live import LiveSession
from tile_oracle.session.options import SessionOptions
from tile_oracle.targets import TargetOptions

LOCAL = "local"
"""--fleet for the devices of this machine, which need no Ray."""


class FleetSession(LiveSession):
    """Collects, plans, builds, records and judges in this process; devices measure in theirs."""

    def __init__(self, options: SessionOptions, **process: Any) -> None:
        """process: see Session. Raises HarnessError."""
        if options.fleet != LOCAL:
            import_ray()  # before anything is written
        super().__init__(options, **process)

    def _target_options(self, options: SessionOptions) -> TargetOptions:
        return replace(super()._target_options(options), elsewhere=options.fleet != LOCAL)

    def _open_driver(self, run: Run, log: RunLog) -> Driver:
        assert self.options.fleet is not None
        asked = {"match": self.options.fleet_match}
        if self.options.fleet == LOCAL:
            here = HostDevices(self._device_settings(run), self.options.fleet_devices or self.target.devices)
            return self._fleet_of(here, Builds(self.target), log, **asked)
        builder = self.target.builder
        engine = RayEngine(
            self.options.fleet,
            replace(self._device_settings(run), journals=""),
            self.target.arch,
            self.options.fleet_devices,
            "" if builder is None else str(builder.cache.folder),
        )
        builds = Builds(self.target, engine.ship, engine.compilers(self.target.source_identity()))
        return self._fleet_of(engine, builds, log, **asked)

    def _fleet_of(self, engine: Engine, builds: Builds, log: RunLog, **asked: Any) -> Driver:
        driver = self._driver_of(engine, builds, log, **asked)
        driver.on_wait = self.show
        return driver

    def close(self, *, interrupted: bool) -> None:
        driver = self._driver
        super().close(interrupted=interrupted)
        if driver is not None:
            self._save(driver)

    @property
    def workers(self) -> int:
        there = [] if self._driver is None else self._driver.progress.devices.values()
        return max(1, sum(one.joined > 0 for one in there))

    def conditions(self) -> dict[str, str]:
        return {} if self._driver is None else _conditions(self._driver)

    def _save(self, driver: Driver) -> None:
        """Adds this session's devices to the run's fleet.json. Raises RecordError."""
        if self.run is not None and self.run.folder.is_dir():
            path = self.run.folder / FLEET_FILE
            add_session(path, driver.progress.devices.values(), driver.places)

    def header(self) -> list[str]:
        where = "this machine" if self.options.fleet == LOCAL else f"Ray at {self.options.fleet}"
        of_kind = f", devices {self.options.fleet_match}" if self.options.fleet_match else ""
        return [*super().header(), f"fleet: {where}{of_kind}"]

    @property
    def notes(self) -> list[str]:
        return [*super().notes, *(() if self._driver is None else self._driver.all_notes())]


def _conditions(driver: Driver) -> dict[str, str]:
    """Returns the fleet in words, for the report."""
    devices = [one for one in driver.progress.devices.values() if one.joined]
    if not devices:
        return {}
    hosts = {one.host for one in devices}
    found = {"fleet": f"{count(len(devices), 'device')} on {count(len(hosts), 'machine')}"}
    if aside := [one for one in devices if one.state == ASIDE]:
        found["fleet, set aside"] = "; ".join(f"{one.name}: {one.why}" for one in aside)
    return found
