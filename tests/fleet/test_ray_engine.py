"""Devices on a Ray cluster of several nodes of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.real_engine import cluster_of, engine_on, events_until, joined
from tests.processes import wait_until
from tile_oracle.fleet.ray_engine import token_hint
from tile_oracle.measure.engine import Event

pytest.importorskip("ray")


def test_an_address_that_does_not_answer_may_want_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert token_hint("host:6379") == ""
    (tmp_path / "token").write_text("secret")
    assert token_hint("host:6379").endswith("set RAY_AUTH_MODE=token")
    assert token_hint("auto") == ""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert token_hint("host:6379") == ""


NEVER_NOTICES = {"health_check_failure_threshold": 10_000, "object_manager_pull_timeout_ms": 3_600_000}
"""Settings of a Ray that never notices a dead node by itself, and waits for what it wanted of it."""


@pytest.mark.slow
def test_another_device_takes_over_from_one_whose_node_dies_while_it_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with cluster_of(2, monkeypatch, NEVER_NOTICES) as cluster:
        fleet = engine_on(cluster, limit=1)
        wait_until(lambda: fleet.events(0.0) or "still opening" in fleet.waiting())
        opening = next(slot.node for slot in fleet._slots.values() if slot.is_opening)
        cluster.kill(cluster.nodes.index(opening))
        after = events_until(fleet, joined)
        if opening[:6] in joined(after)[0]:  # it was open already
            after = events_until(fleet, joined)
        assert cluster.nodes[0][:6] in joined(after)[0]
        fleet.close()


@pytest.mark.slow
def test_devices_that_failed_open_again_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one is wanted, two would take from each other the time to open."""
    with cluster_of(2, monkeypatch) as cluster:
        fleet = engine_on(cluster, limit=1)
        (first,) = joined(events_until(fleet, joined))
        for slot in fleet._slots.values():
            slot.deaths = 1
        fleet._ray.kill(fleet._slots[first].process.actor)
        opening: list[int] = []

        def watched(events: list[Event]) -> list[str]:
            opening.append(sum(slot.is_opening for slot in fleet._slots.values()))
            return joined(events)

        events_until(fleet, watched)
        assert max(opening) == 1
        fleet.close()


@pytest.mark.slow
def test_a_node_that_joins_late_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of(0, monkeypatch) as cluster:
        fleet = engine_on(cluster)
        assert fleet.events(0.1) == []
        assert fleet.waiting() == "the cluster has no cpu device"
        cluster.add()
        (late,) = joined(events_until(fleet, joined))
        assert cluster.nodes[0][:6] in late
        fleet.close()
