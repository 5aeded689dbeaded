"""The engine on a Ray cluster of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tile_oracle.fleet.ray_engine import RayEngine
from tile_oracle.measure.assignments import DeviceSettings, Message
from tile_oracle.measure.engine import Event, Joined, Told
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.targets import TargetOptions
from tools.faults.ray_cluster import RayCluster

LIMIT_S = 600.0


@contextmanager
def cluster_of(
    nodes: int, patch: pytest.MonkeyPatch, settings: Mapping[str, Any] | None = None
) -> Iterator[RayCluster]:
    """A cluster, which leaves this process's environment as it was. settings: of Ray itself."""
    patch.setenv("RAY_TMPDIR", "/tmp")  # pytest's own folders are too long for Ray's sockets
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with RayCluster(nodes, {"RAY_TMPDIR": os.environ["RAY_TMPDIR"]}, settings) as cluster:
        yield cluster


def engine_on(cluster: RayCluster, limit: int | None = None) -> RayEngine:
    """The engine of a session with target cpu."""
    sweep = SweepSettings(timing=TimingPlan(budget_ms=1.0, exact_samples=5))
    settings = DeviceSettings("cpu", TargetOptions(jobs=1), sweep, "the-run")
    return RayEngine(cluster.address, settings, "cpu", limit)


def events_until(engine: RayEngine, enough: Callable[[list[Event]], object]) -> list[Event]:
    """What happens until it is enough."""
    found: list[Event] = []
    end = time.monotonic() + LIMIT_S
    while not enough(found):
        assert time.monotonic() < end, found
        found += engine.events(0.2)
    return found


def joined(events: list[Event]) -> list[str]:
    """The devices that joined."""
    return [event.device for event in events if isinstance(event, Joined)]


def messages(events: list[Event]) -> list[Message]:
    """What devices told."""
    return [one for event in events if isinstance(event, Told) for one in event.messages]
