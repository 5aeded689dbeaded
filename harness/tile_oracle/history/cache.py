"""Summaries of runs, kept in one file beside them, so that only new runs are read.

The file is a cache: it is made again if it is missing, of another version or damaged, and a folder that
cannot be written works without it. A run whose files changed (size or time) is read again; a run that is gone
is forgotten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tile_oracle.errors import HarnessError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.user_file import read_regular
from tile_oracle.history.summary import REPORT, SELECTION, VERDICT, NameTable, RunSummary, summarize

CACHE = ".tile-oracle-history"

_VERSION = 2
_DIGEST_BYTES = 16
_CODES, _FLOATS = ("problems", "picks", "oracles"), ("efficiency", "tflops")


def read_summaries(
    root: Path, folders: Sequence[Path], *, use_cache: bool = True
) -> tuple[list[RunSummary], NameTable, list[str]]:
    """Returns the summaries of run folders below `root`, their names, and a line for each run that cannot be
    read."""
    path = root / CACHE
    names, kept = _load(path) if use_cache else (NameTable(), {})
    found: list[RunSummary] = []
    stamps: dict[str, str] = {}
    unreadable: list[str] = []
    read = 0
    for folder in folders:
        key = folder.relative_to(root).as_posix()
        stamp = stamps[key] = _stamp(folder)
        before = kept.get(key)
        if before is not None and before[0] == stamp:
            found.append(before[1])
            continue
        read += 1
        try:
            found.append(summarize(folder, key, names))
        except HarnessError as error:
            unreadable.append(str(error))
    if use_cache and (read > len(unreadable) or len(kept) != len(found)):
        with suppress(OSError):
            write_atomically(path, _packed(names, found, stamps))
    return found, names, unreadable


def _stamp(folder: Path) -> str:
    """Changes when the files that a summary is made of change."""
    parts = []
    for name in (VERDICT, SELECTION, REPORT, "run.json", "measurements"):
        try:
            state = (folder / name).stat()
            parts.append(f"{state.st_size}:{state.st_mtime_ns}")
        except OSError:
            parts.append("-")
    return " ".join(parts)


def _packed(names: NameTable, runs: Iterable[RunSummary], stamps: dict[str, str]) -> bytes:
    rows = []
    for run in runs:
        row = {field.name: getattr(run, field.name) for field in fields(run)}
        row |= {name: row[name].astype("<i4").tobytes() for name in _CODES}
        row |= {name: row[name].astype("<f8").tobytes() for name in _FLOATS}
        rows.append((stamps[run.folder], row))
    body = msgspec.msgpack.encode({"version": _VERSION, "names": names.names, "runs": rows})
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def _load(path: Path) -> tuple[NameTable, dict[str, tuple[str, RunSummary]]]:
    """Returns the names, and folder -> (stamp, summary); empty without a usable file."""
    try:
        data = read_regular(path)
        body = data[_DIGEST_BYTES:]
        if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != data[:_DIGEST_BYTES]:
            return NameTable(), {}
        document = msgspec.msgpack.decode(body)
        if document["version"] != _VERSION:
            return NameTable(), {}
        runs = {row["folder"]: (stamp, _summary(row)) for stamp, row in document["runs"]}
        return NameTable(list(document["names"])), runs
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return NameTable(), {}


def _summary(row: dict[str, Any]) -> RunSummary:
    arrays = {name: np.frombuffer(row[name], dtype="<i4").astype(np.int32) for name in _CODES}
    floats = {name: np.frombuffer(row[name], dtype="<f8").astype(np.float64) for name in _FLOATS}
    return RunSummary(**{**row, **arrays, **floats})
