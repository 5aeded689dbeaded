"""The target of a session, on a machine of its fleet."""

from __future__ import annotations

from tile_oracle.fleet.messages import DeviceSettings
from tile_oracle.problem import problem_from_id
from tile_oracle.target.base import Target, parts_of
from tile_oracle.target.with_libraries import WithLibraries
from tile_oracle.target.with_sources import pool_source, resolve_with_sources


def open_target(settings: DeviceSettings) -> Target:
    """The target with all kernel sources and libraries of the session. Raises HarnessError."""
    target, _ = resolve_with_sources(settings.target, settings.options, settings.more_sources)
    for source in map(pool_source, parts_of(target)):
        if source is not None:
            source.expect([problem_from_id(name) for name in settings.problems])
    return WithLibraries(target, settings.offers) if settings.offers else target
