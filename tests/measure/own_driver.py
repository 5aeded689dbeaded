"""Sessions whose own device measures: the driver, and all that a process has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from evil_target import NOISE_ALLOWED, EvilTarget, small_problem

from tile_oracle.compiling.builder import Builder
from tile_oracle.kernel import Kernel
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.driver import Driver, ProblemTask
from tile_oracle.measure.own_device import OwnDevice
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.problem import Problem
from tile_oracle.record.dataset import IDENTITY
from tile_oracle.record.run import RunLog, open_run

SETTINGS = SweepSettings(
    timing=TimingPlan(budget_ms=0.5, noisy_above=NOISE_ALLOWED),
    final_budget_ms=0.1,
    final_passes=1,
    leaders_within=1e3,
)
PROBLEM, OTHER = small_problem(), small_problem(N=2)


def own_driver(
    supervisor: Supervisor,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    log: RunLog,
    *,
    picks: Callable[[Problem], Collection[Kernel]] = lambda problem: (),
) -> Driver:
    """Measures these kernels on each of the problems, when they are asked for."""
    builds = Builds(supervisor.target)
    engine = OwnDevice(supervisor, log.run.name, builds)
    driver = Driver(
        engine,
        builds,
        log,
        lambda kind: picks,
        supervisor.row_of,
        supervisor.settings,
        in_order=True,
        in_turn=True,
    )
    driver.start(ProblemTask(problem, kernels, 1.0) for problem in problems)
    return driver


class OwnSession:
    """What a process that measures has: the run, its log, a supervisor and its driver."""

    def __init__(
        self,
        builder: Builder,
        reports: Path,
        plan: Sequence[GroupedConvKernel],
        target: type[EvilTarget] = EvilTarget,
        supervisor: type[Supervisor] = Supervisor,
        **options: Any,
    ) -> None:
        self.run = open_run(reports, {"a": 1}, stem="s", name="mine", resume=True)
        self.log = RunLog(self.run, f"w{len(list(self.run.folder.rglob('*')))}")
        self.target, self.plan = target(builder), plan
        self.supervisor = supervisor(self.target, SETTINGS, self.run.measurements)
        self.driver = own_driver(self.supervisor, [PROBLEM, OTHER], plan, self.log, **options)

    def close(self) -> pd.DataFrame:
        """Ends the session. Returns the run's records."""
        self.driver.abandon()
        self.log.close()
        table = pd.read_parquet(self.run.measurements)
        assert not table.duplicated(IDENTITY).any()
        return table
