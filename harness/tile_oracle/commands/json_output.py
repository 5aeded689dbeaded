"""`--json`: what a command shows, as JSON. It goes to stdout alone; progress and notes go to stderr."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, TextIO

import msgspec

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.terminal.argument_table import STDOUT


def progress_stream(args: argparse.Namespace) -> TextIO:
    """Returns where lines about the work go: stdout, which --json needs for itself."""
    return sys.stderr if args.json in (True, STDOUT) else sys.stdout


def json_text(document: object) -> str:
    """Returns one document; numbers that are not finite become null."""
    plain = msgspec.json.decode(msgspec.json.encode(document, enc_hook=_simple))
    return json.dumps(plain, indent=1) + "\n"


def print_json(document: object) -> None:
    """Prints one document."""
    sys.stdout.write(json_text(document))


def put_json(place: Path | None, document: object) -> None:
    """Prints the document (`-`) or writes it to a file; None: neither. Raises RecordError."""
    if place is not None:
        put_text(place, json_text(document))


def put_text(place: Path, text: str) -> None:
    """Prints a text (`-`) or writes it to a file. Raises RecordError."""
    if place == STDOUT:
        sys.stdout.write(text)
    else:
        write_text(place, text)


def write_text(path: Path, text: str) -> None:
    """Writes a file of UTF-8 text, and the folders that it needs. Raises RecordError."""
    with disk_errors_as(RecordError, f"cannot write {path}", "choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode("utf-8"))


def _simple(value: Any) -> Any:
    """Returns what JSON and msgspec do not have, as what they have."""
    is_number = hasattr(value, "item") and getattr(value, "ndim", None) == 0  # of NumPy
    return value.item() if is_number else str(value)
