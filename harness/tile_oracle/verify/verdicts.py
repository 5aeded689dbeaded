"""Stores reports beside binaries, so that each version of the verifier verifies a kernel only once."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.verify.findings import Finding, FunctionReport, Report

_FILE = "verified.json"


@lru_cache(maxsize=1)
def verifier_digest() -> str:
    """sha256 over the verifier's modules."""
    total = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def keep_verdict(folder: Path, report: Report) -> None:
    """Writes a report into a binary's folder; does nothing when the folder is read-only."""
    body = {"verifier": verifier_digest(), "report": asdict(report)}
    with suppress(OSError):
        write_atomically(folder / _FILE, json.dumps(body, indent=1, sort_keys=True).encode())


def read_verdict(folder: Path) -> Report | None:
    """The report in a binary's folder; None when there is none from this version of the verifier."""
    try:
        body = json.loads((folder / _FILE).read_bytes())
        if body["verifier"] != verifier_digest():
            return None
        return _report(body["report"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _report(row: dict[str, Any]) -> Report:
    functions = tuple(
        FunctionReport(
            str(one["name"]),
            int(one["instructions"]),
            int(one["blocks"]),
            _findings(one["findings"]),
            _findings(one["not_proven"]),
            tuple(one["incomplete"]),
            tuple(one["notes"]),
        )
        for one in row["functions"]
    )
    return Report(str(row["target"]), str(row["compiler"]), functions)


def _findings(rows: list[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(**{**found, "path": tuple(found["path"])}) for found in rows)
