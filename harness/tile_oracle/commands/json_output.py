"""`--json`: what a command shows, as JSON. It goes to stdout alone; progress and notes go to stderr."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as

STDOUT = "-"


def progress_stream(args: argparse.Namespace) -> TextIO:
    """Returns where lines about the work go: stdout, which --json needs for itself."""
    return sys.stderr if args.json in (True, STDOUT) else sys.stdout


def json_text(document: object) -> str:
    """Returns one document; numbers that are not finite become null."""
    return json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"


def print_json(document: object) -> None:
    """Prints one document."""
    sys.stdout.write(json_text(document))


def put_json(place: str | Path | None, document: object) -> None:
    """Prints the document (`-`) or writes it to a file; None: neither. Raises RecordError."""
    if place is not None:
        put_text(place, json_text(document))


def put_text(place: str | Path, text: str) -> None:
    """Prints a text (`-`) or writes it to a file. Raises RecordError."""
    if str(place) == STDOUT:
        sys.stdout.write(text)
    else:
        write_text(Path(place), text)


def write_text(path: Path, text: str) -> None:
    """Writes a file of UTF-8 text, and the folders that it needs. Raises RecordError."""
    with disk_errors_as(RecordError, f"cannot write {path}", "choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode("utf-8"))


def _plain(value: object) -> Any:
    """Returns the value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(one) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of NumPy
        return _plain(value.item())
    return str(value)
