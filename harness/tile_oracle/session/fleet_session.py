"""A session that builds here and measures on the devices of a fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tile_oracle.fleet.fleet_file import FLEET_FILE, add_session
from tile_oracle.fleet.ray_engine import RayEngine, import_ray
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.device_progress import ASIDE, DeviceProgress
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
        settings, most = self._device_settings(run), self.options.fleet_devices
        engine: Engine
        if self.options.fleet == LOCAL:
            engine, builds = HostDevices(settings, most or self.target.devices), Builds(self.target)
        else:
            builder = self.target.builder
            cache = "" if builder is None else str(builder.cache.folder)
            settings = replace(settings, journals="")
            engine = ray = RayEngine(self.options.fleet, settings, self.target.arch, most, cache)
            builds = Builds(self.target, ray.ship, ray.compilers(self.target.source_identity()))
        driver = self._driver_of(engine, builds, log, match=self.options.fleet_match)
        driver.on_wait = self.show
        return driver

    def close(self) -> None:
        super().close()
        driver, run = self._driver, self.run
        if driver is not None and run is not None and run.folder.is_dir():
            there = driver.progress.devices.values()
            add_session(run.folder / FLEET_FILE, there, driver.places)

    @property
    def _joined(self) -> list[DeviceProgress]:
        there = [] if self._driver is None else self._driver.progress.devices.values()
        return [one for one in there if one.joined]

    @property
    def workers(self) -> int:
        return max(1, len(self._joined))

    def conditions(self) -> dict[str, str]:
        """Returns the fleet in words, for the report."""
        if not (devices := self._joined):
            return {}
        hosts = {one.host for one in devices}
        found = {"fleet": f"{count(len(devices), 'device')} on {count(len(hosts), 'machine')}"}
        if aside := [one for one in devices if one.state == ASIDE]:
            found["fleet, set aside"] = "; ".join(f"{one.name}: {one.why}" for one in aside)
        return found

    def header(self) -> list[str]:
        where = "this machine" if self.options.fleet == LOCAL else f"Ray at {self.options.fleet}"
        of_kind = f", devices {self.options.fleet_match}" if self.options.fleet_match else ""
        return [*super().header(), f"fleet: {where}{of_kind}"]

    @property
    def notes(self) -> list[str]:
        return [*super().notes, *(() if self._driver is None else self._driver.all_notes())]
