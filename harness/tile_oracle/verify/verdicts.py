"""Stores reports beside binaries, so that each version of the verifier verifies a kernel only once."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.verify.findings import Report

_FILE = "verified.json"


@lru_cache(maxsize=1)
def verifier_digest() -> str:
    """sha256 over the verifier's modules."""
    total = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


class _Kept(msgspec.Struct):
    verifier: str
    report: Report


def keep_verdict(folder: Path, report: Report) -> None:
    """Writes a report into a binary's folder; does nothing when the folder is read-only."""
    with suppress(OSError):
        write_atomically(folder / _FILE, msgspec.json.encode(_Kept(verifier_digest(), report)))


def read_verdict(folder: Path) -> Report | None:
    """Returns the report in a binary's folder; None when there is none from this version of the verifier."""
    try:
        kept = msgspec.json.decode((folder / _FILE).read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return kept.report if kept.verifier == verifier_digest() else None
