"""The paths of baselines, and writing and reading them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tile_oracle.errors import GateError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import read_object, typed
from tile_oracle.files.vouched_files import sealed_baseline
from tile_oracle.judge.baseline import EFFICIENCY_DECIMALS, Baseline
from tile_oracle.judge.failures import FAILURE_STATUSES
from tile_oracle.judge.noise import Margin

BASELINE_SCHEMA = 2

_FIX = "restore it from version control"


def baseline_path(root: Path, model: str, device: str, problem_set: str, kernel_set: str = "default") -> Path:
    """root/<model>/<device>/<problem set>/<kernel set>.json, each part made safe by `slug`.

    The kernel set is part of it because the oracle, and so every efficiency, depends on the pool.
    """
    return root / slug(model) / slug(device) / slug(problem_set) / f"{slug(kernel_set)}.json"


def slug(name: str) -> str:
    """Returns a file name for any text: 1 to 64 lower-case letters, digits, dots, dashes and underscores.

    Text that is already such a name is unchanged. Other text is converted, with eight hex digits of its
    SHA-256 at the end, so that different texts get different names. Raises GateError for "".
    """
    if not name:
        raise GateError("a baseline is kept by model, device and problem set: none of them may be empty")
    if _SAFE_NAME.fullmatch(name) and not _ENDS_AS_HASHED.search(name):
        return name
    near = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:48].rstrip("-._")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{near or 'x'}-{digest}"


def baseline_document(baseline: Baseline) -> dict[str, Any]:
    """Returns the baseline as JSON, as stored in its file and quoted in verdict.json."""
    return {
        "schema": BASELINE_SCHEMA,
        **{name: value for name, value in vars(baseline).items() if isinstance(value, str)},
        "coverage_percent": round(baseline.coverage_percent, 6),
        "efficiencies": {
            problem: None if value is None else round(float(value), EFFICIENCY_DECIMALS)
            for problem, value in baseline.efficiencies.items()
        },
        "picks": {problem: _pick_row(margin) for problem, margin in baseline.picks.items()},
        "known_failures": {
            problem: dict(kernels) for problem, kernels in baseline.known_failures.items() if kernels
        },
    }


def save_baseline(baseline: Baseline, path: Path) -> None:
    """Writes the file atomically, sealed, with the digest of its oracle; equal baselines give equal bytes.
    Raises GateError."""
    with disk_errors_as(GateError, f"the baseline {path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, sealed_baseline(baseline_document(baseline), path))


def load_baseline(path: Path) -> Baseline | None:
    """Returns the baseline in a file, None if there is no file. Raises GateError for a file that is not a
    baseline."""
    if not path.exists():
        return None
    return parse_baseline(read_object(path, GateError, _FIX), path)


_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}[a-z0-9_]|[a-z0-9]")
_ENDS_AS_HASHED = re.compile(r"-[0-9a-f]{8}$")


def parse_baseline(document: Any, path: Path) -> Baseline:
    """Returns the inverse of `baseline_document`. path: the file, for the message of a GateError."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != BASELINE_SCHEMA:
        raise GateError(f"{path} is no baseline of schema {BASELINE_SCHEMA} (it has {schema!r}): {_FIX}")
    baseline = typed(document, Baseline, path, GateError, _FIX)
    for problem, kernels in baseline.known_failures.items():
        for kernel, status in kernels.items():
            if status not in FAILURE_STATUSES:
                raise GateError(f"{path}: {kernel!r} on {problem!r} is known as {status!r}: not a failure")
    return baseline


def _pick_row(margin: Margin) -> dict[str, Any]:
    """Rounds to twelve significant digits: more than a clock resolves, and the same text on every machine.
    A drift of 0 is left out."""
    row = asdict(margin)
    if not margin.drift:
        del row["drift"]
    return {
        name: float(f"{value:.12g}") if isinstance(value, float) else value for name, value in row.items()
    }
