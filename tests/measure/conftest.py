"""Supervisors of evil kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from evil_target import FLAG, EvilTarget

from tests.measure.sweeping import SETTINGS
from tile_oracle.compiling.builder import Builder
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings


@pytest.fixture
def flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flag"
    monkeypatch.setenv(FLAG, str(path))
    return path


@pytest.fixture
def open_supervisor(evil_builder: Builder) -> Iterator[Callable[..., Supervisor]]:
    opened = []

    def make(target: EvilTarget | None = None, settings: SweepSettings = SETTINGS) -> Supervisor:
        opened.append(Supervisor(target or EvilTarget(evil_builder), settings))
        return opened[-1]

    yield make
    for supervisor in opened:
        supervisor.close()
