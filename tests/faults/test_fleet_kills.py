"""A sample of the campaign `fleet_kills`: actors, nodes and the session are killed; the run is complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pytest_project import Project
from tools.faults import fleet_kills

pytest.importorskip("ray")


@pytest.mark.slow
def test_a_fleet_that_is_killed_loses_and_doubles_nothing(
    make_project: Callable[[], Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Path(make_project().environment["TILE_ORACLE_CACHE"])
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # pytest's own folders are too long for Ray's sockets
    outcome, _ = fleet_kills.run_in(tmp_path, cache, 4, 2)
    assert outcome.faults == 4
    assert not outcome.failures
