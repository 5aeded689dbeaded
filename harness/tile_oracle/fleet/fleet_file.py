"""fleet.json in a run's folder: the devices of each session, and their times of the calibration kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tile_oracle.atomic_file import write_atomically
from tile_oracle.errors import RecordError
from tile_oracle.fleet.health import Health
from tile_oracle.fleet.progress import DeviceProgress

FLEET_FILE = "fleet.json"


def add_session(path: Path, devices: Iterable[DeviceProgress], health: Health) -> None:
    """Adds a session to the file, which is made if it is not there. An unreadable file is replaced, because
    nothing depends on it. Raises RecordError if it cannot be written."""
    try:
        sessions = json.loads(path.read_bytes())["sessions"]
        assert isinstance(sessions, list)
    except (OSError, ValueError, KeyError, TypeError, AssertionError, RecursionError):
        sessions = []
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    sessions.append({"ended": ended, "devices": [_device(one, health) for one in devices]})
    text = json.dumps({"sessions": sessions}, indent=1, sort_keys=True) + "\n"
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror or error}") from None


def _device(one: DeviceProgress, health: Health) -> dict[str, Any]:
    speed = health.speed(one.name)
    return {
        "name": one.name,
        "host": one.host,
        "kind": one.kind,
        "driver": one.driver,
        "state": one.state,
        "why": one.why,
        "times_joined": one.joined,
        "pairs": one.pairs,
        "busy_s": round(one.busy_s, 3),
        "time_over_median": None if speed is None else round(speed, 4),
        "calibration": {
            kernel: {"status": result.status, "latency_ms": _number(result.latency_ms)}
            for kernel, result in health.results(one.name).items()
        },
    }


def _number(value: float) -> float | None:
    return value if value == value else None
