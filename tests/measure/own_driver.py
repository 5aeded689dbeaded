"""The driver of a session whose own device measures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tile_oracle.kernel import Kernel
from tile_oracle.measure.builds import BuiltThere
from tile_oracle.measure.driver import Driver, ProblemTask, Questions
from tile_oracle.measure.own_device import OwnDevice
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.problem import Problem
from tile_oracle.record.run import RunLog


def own_driver(
    supervisor: Supervisor,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    log: RunLog,
    *,
    picks: Callable[[Problem], Collection[Kernel]] = lambda problem: (),
    keep_samples: bool = False,
) -> Driver:
    """Measures these kernels on each of the problems, when they are asked for."""
    engine = OwnDevice(supervisor, log.run.name, keep_samples=keep_samples)
    driver = Driver(
        engine,
        BuiltThere(supervisor.target),
        log,
        Questions(lambda kind: picks, supervisor.row_of),
        supervisor.settings,
        in_order=True,
        in_turn=True,
    )
    driver.start(ProblemTask(problem, kernels, 1.0) for problem in problems)
    return driver
