"""fleet.json in a run's folder: the devices of each session, and where its kernels were compiled."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import read_object, seal, typed
from tile_oracle.measure.device_progress import DeviceProgress
from tile_oracle.measure.engine import Compiler

FLEET_FILE = "fleet.json"

_FIX = "nothing depends on it: remove it"

_log = logging.getLogger(__name__)


def add_session(path: Path, devices: Iterable[DeviceProgress], compilers: Iterable[Compiler] = ()) -> None:
    """Adds a session to the file, which is made if it is not there. A damaged file is replaced, with a
    warning in the log: nothing depends on it. Raises RecordError if it cannot be written."""
    try:
        sessions = read_sessions(path)
    except RecordError as error:
        _log.warning("%s; its sessions are left out", error)
        sessions = []
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    session = {
        "ended": ended,
        "devices": [_device(one) for one in devices],
        "compilers": [one.as_dict() for one in compilers],
    }
    text = json.dumps(seal({"sessions": [*sessions, session]}), indent=1, sort_keys=True) + "\n"
    with disk_errors_as(RecordError, f"{path} cannot be written"):
        write_atomically(path, text.encode())


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """Returns the sessions of a fleet.json; none if there is no file. Raises RecordError for a damaged
    file."""
    if not path.exists():
        return []
    document = read_object(path, RecordError, _FIX)
    return typed(document.get("sessions"), list[dict[str, Any]], path, RecordError, _FIX)


def _device(one: DeviceProgress) -> dict[str, Any]:
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
    }
