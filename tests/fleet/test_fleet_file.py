"""fleet.json is sealed: damage is said, and costs no session."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tile_oracle.errors import RecordError
from tile_oracle.fleet.fleet_file import add_session, read_sessions
from tile_oracle.measure.assignments import Opened
from tile_oracle.measure.device_progress import DevicesProgress
from tile_oracle.measure.engine import Compiler


def add(path: Path, *names: str) -> None:
    progress = DevicesProgress()
    for name in names:
        progress.joined(name, Opened("H200", "driver", "host", 1))
    add_session(path, progress.devices.values(), [Compiler("node", "host", 12)])


def test_each_session_is_added(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    assert read_sessions(path) == []
    add(path, "a")
    add(path, "a", "b")
    first, second = read_sessions(path)
    assert [one["name"] for one in second["devices"]] == ["a", "b"]
    assert first["compilers"] == [{"node": "node", "host": "host", "compiled": 12, "why": ""}]


def test_a_changed_value_is_refused_and_the_next_session_begins_the_file_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "fleet.json"
    add(path, "a")
    path.write_text(path.read_text().replace('"a"', '"b"'))
    with pytest.raises(RecordError, match=r"fleet\.json is damaged"):
        read_sessions(path)
    with caplog.at_level(logging.WARNING, "tile_oracle"):
        add(path, "c")
    assert "fleet.json is damaged" in caplog.text
    assert [one["name"] for one in read_sessions(path)[0]["devices"]] == ["c"]
