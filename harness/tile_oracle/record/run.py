"""A run: one folder under reports/ with its purpose (run.json), the measurements and the reports."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import make_folder, sync_folder, write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import object_in, seal, typed
from tile_oracle.files.user_file import read_regular
from tile_oracle.record.dataset import measurements_folder
from tile_oracle.record.journal import (
    Journal,
    forget_lost,
    journals_in,
    names_in,
    parts_in,
    read_journal,
    seal_abandoned,
    set_damaged_aside,
    tell_in_log,
)
from tile_oracle.record.owner import RunLock, join, own
from tile_oracle.record.sealed_parquet import DamagedError, read_table

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MANIFEST = "run.json"
_FIX = "its measurements can still be read and merged"

ALREADY_KNOWN = (
    *("problem", "kernel", "round", "status", "detail", "latency_ms", "latency_min_ms", "spread", "samples"),
    *("check", "check_points", "at_least_ms", "device"),
)
"""The columns of earlier measurements that a resumed run needs."""


@dataclass(frozen=True)
class Run:
    """A run's folder and its purpose. A run may be resumed by a session with an equal `purpose`.

    lock: held by the run's owner and by the owner's workers; None for readers.
    """

    folder: Path
    purpose: Mapping[str, Any]
    resumed: bool = False
    lock: RunLock | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def measurements(self) -> Path:
        return measurements_folder(self.folder)

    @property
    def has_files(self) -> bool:
        """Whether anything was recorded. Raises RecordError if the folder cannot be listed: that is not
        "nothing"."""
        return bool(names_in(self.measurements, "", ""))


def check_name(name: str | None) -> None:
    """Raises RecordError for a run's name that is no plain file name."""
    if name is not None and not _NAME.fullmatch(name):
        raise RecordError(
            f"--run-name {name!r} is not a plain name of letters, digits, dot, dash, underscore"
        )


def open_run(reports: Path, purpose: Mapping[str, Any], *, stem: str, name: str | None, resume: bool) -> Run:
    """Creates a run, or with `resume` opens the newest one with the same purpose (or the one named).

    purpose: JSON values that determine the measurements (problem sets, kernels, target, sources).
    stem: prefix of a new run's name. A resumed run loses its device_lost rows, and its damaged parts are set
    aside: those pairs are measured again. Raises RecordError for a name that is not a file name or is taken,
    for a run to resume that has another purpose, and for files that cannot be read or written.
    """
    check_name(name)
    wanted = json.loads(json.dumps(purpose))
    with disk_errors_as(
        RecordError, f"cannot open a run in {reports}", "free space or choose another --report-dir"
    ):
        if resume:
            found = _find(reports, wanted, name)
            if found is not None:
                lock = own(found, MANIFEST)
                measurements = measurements_folder(found)
                seal_abandoned(measurements)
                set_damaged_aside(measurements)
                forget_lost(measurements)
                return Run(found, wanted, resumed=True, lock=lock)
        folder = _make(reports, name or _timed_name(stem), exact=name is not None, take_empty=resume)
        lock = own(folder, MANIFEST)
        for leftover in folder.iterdir() if _is_empty(folder) else ():
            leftover.unlink(missing_ok=True)
        if any(folder.iterdir()):
            raise RecordError(f"another session has just created {folder}: wait until it ends, then --resume")
        document = seal({"purpose": wanted, "started": datetime.now(UTC).isoformat(timespec="seconds")})
        write_atomically(folder / MANIFEST, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
        return Run(folder, wanted, lock=lock)


def join_run(folder: Path, owner: str, *, resumed: bool) -> Run:
    """Opens a run in a worker of its owner, another process (`owner.name_of_owner`).

    Raises RecordError.
    """
    return Run(folder, {}, resumed=resumed, lock=join(folder, MANIFEST, owner))


def _timed_name(stem: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "run"
    return plain + datetime.now().strftime("-%Y%m%d-%H%M%S")


def _find(reports: Path, wanted: Any, name: str | None) -> Path | None:
    if name is not None:
        folder = reports / name
        if not folder.is_dir() or _is_empty(folder):
            return None
        try:
            there = _purpose(folder)
        except (DamagedError, FileNotFoundError):
            raise RecordError(
                f"{folder} cannot be resumed: it holds no readable {MANIFEST}; choose a new --run-name"
            ) from None
        if there != wanted:
            differs = sorted(k for k in {*wanted, *there} if there.get(k) != wanted.get(k))
            raise RecordError(
                f"{folder} cannot be resumed: it was made with another {', '.join(differs)}; "
                "choose a new --run-name"
            )
        return folder
    found: list[tuple[int, Path]] = []
    for folder in _folders_in(reports):
        try:
            if _purpose(folder) == wanted:
                found.append(((folder / MANIFEST).stat().st_mtime_ns, folder))
        except FileNotFoundError:
            continue
        except DamagedError as error:
            tell_in_log(f"{error}; it is not resumed")
    return max(found)[1] if found else None


def _folders_in(reports: Path) -> list[Path]:
    return sorted(path for path in reports.iterdir() if path.is_dir()) if reports.exists() else []


def purpose_of(folder: Path) -> dict[str, Any]:
    """Returns the purpose of a run; empty for a folder without a manifest, and for a damaged one, which is
    reported. Raises RecordError for a manifest that cannot be read."""
    try:
        return _purpose(folder)
    except FileNotFoundError:
        return {}
    except DamagedError as error:
        tell_in_log(str(error))
        return {}


def _is_empty(folder: Path) -> bool:
    """Returns whether the run was interrupted before anything was written."""
    return all(path.name.startswith(f".{MANIFEST}.") for path in folder.iterdir())


def _purpose(folder: Path) -> dict[str, Any]:
    """Raises FileNotFoundError if there is no manifest, RecordError if it cannot be read, and DamagedError if
    it is not what was written."""
    path = folder / MANIFEST
    try:
        data = read_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from None
    purpose = object_in(data, path, DamagedError, _FIX).get("purpose")
    return typed(purpose, dict[str, Any], f"{path} is damaged: purpose", DamagedError, _FIX)


def _make(reports: Path, base: str, *, exact: bool, take_empty: bool) -> Path:
    for attempt in range(1, 1000):
        folder = reports / (base if attempt == 1 else f"{base}-{attempt}")
        try:
            make_folder(reports)
            folder.mkdir()
            sync_folder(reports)
        except FileExistsError:
            if exact and take_empty and folder.is_dir():
                return folder  # `_find` saw that nothing was written to it
            if exact:
                raise RecordError(
                    f"{folder} exists already: add --resume to continue it, or choose another --run-name"
                ) from None
            continue
        return folder
    raise RecordError(f"{reports} holds a thousand runs called {base}")


class RunLog:
    """The rows that a session records in a run, and those of earlier sessions."""

    def __init__(self, run: Run, writer: str) -> None:
        self.run = run
        self._journal = Journal(run.measurements, writer)

    def append(self, row: Mapping[str, Any]) -> None:
        """Records one measurement durably; the run's name and the time are filled in."""
        stamped = {"run": self.run.name, "time": datetime.now(UTC).isoformat(), **row}
        self._journal.append(stamped)

    def append_lines(self, lines: Sequence[bytes]) -> None:
        """Records measurements durably that are lines already (journal_line.encode_line), all or none."""
        self._journal.append_lines(lines)

    def close(self) -> None:
        self._journal.seal()

    def check_device(self, name: str) -> None:
        """Raises RecordError if earlier sessions measured on another device."""
        rows = (row for rows in self._known.values() for row in rows.values())
        if others := {row["device"] for row in rows if row["device"] and row["latency_ms"]} - {name}:
            raise RecordError(
                f"{self.run.folder} was measured on {', '.join(sorted(others))}, and this device is {name}, "
                "whose times are not comparable: continue it there, or begin another run without --resume"
            )

    def known(self, problem_id: str) -> list[dict[str, Any]]:
        """Returns the rows of a problem that were there when this was first asked. Raises RecordError."""
        return list(self._known[problem_id].values())

    @cached_property
    def _known(self) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
        known: dict[str, dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
        # A journal is there if its session's disk was full.
        rows = [row for path in journals_in(self.run.measurements) for row in read_journal(path).rows]
        for path in parts_in(self.run.measurements):
            rows += _read_known(path)
        for row in rows:
            known[row["problem"]][row["kernel"], row["round"]] = row
        return known


def _read_known(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = read_table(path, ALREADY_KNOWN).to_pylist()
    except DamagedError as error:
        raise RecordError(f"{error}; --resume sets it aside and measures its pairs again") from None
    return rows
