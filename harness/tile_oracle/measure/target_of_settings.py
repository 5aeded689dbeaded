"""The target of a session, in a device's process."""

from __future__ import annotations

from tile_oracle.libraries.algorithms import Algorithms
from tile_oracle.measure.assignments import DeviceSettings
from tile_oracle.problem import problem_from_id
from tile_oracle.targets import resolve_target
from tile_oracle.targets.target import Target


def open_target(settings: DeviceSettings) -> Target:
    """Returns the target with all kernel sources and libraries of the session. Raises HarnessError."""
    target, _ = resolve_target(settings.target, settings.options)
    for source in target.compiled:
        source.kernels.expect([problem_from_id(name) for name in settings.problems])
    target.sources += [Algorithms(one, target.arch) for one in settings.offers]
    return target
