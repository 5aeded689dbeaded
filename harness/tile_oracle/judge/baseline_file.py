"""The paths of baselines, and writing and reading them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tile_oracle.errors import GateError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.sealed_json import check_seal
from tile_oracle.files.user_file import read_bytes
from tile_oracle.files.vouched_files import sealed_baseline
from tile_oracle.judge.baseline import EFFICIENCY_DECIMALS, Baseline
from tile_oracle.judge.failures import FAILURE_STATUSES
from tile_oracle.judge.noise import Margin

BASELINE_SCHEMA = 2
_READ_SCHEMAS = (1, 2)

_LARGEST_BASELINE_BYTES = 256 * 2**20


def baseline_path(root: Path, model: str, device: str, problem_set: str, kernel_set: str = "default") -> Path:
    """root/<model>/<device>/<problem set>/<kernel set>.json, each part made safe by `slug`.

    The kernel set is part of it because the oracle, and so every efficiency, depends on the pool.
    """
    return root / slug(model) / slug(device) / slug(problem_set) / f"{slug(kernel_set)}.json"


def slug(name: str) -> str:
    """A file name for any text: 1 to 64 lower-case letters, digits, dots, dashes and underscores.

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
    """The baseline as JSON, as stored in its file and quoted in verdict.json."""
    return {
        "schema": BASELINE_SCHEMA,
        **{name: getattr(baseline, name) for name in _TEXT_FIELDS},
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, sealed_baseline(baseline_document(baseline), path))
    except OSError as error:
        raise GateError(f"the baseline {path} cannot be written: {error.strerror or error}") from None


def load_baseline(path: Path) -> Baseline | None:
    """The baseline in a file, None if there is no file. Raises GateError for a file that is not a
    baseline."""
    try:
        document = json.loads(read_bytes(path, _LARGEST_BASELINE_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GateError(f"the baseline {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise GateError(f"{path} is not JSON ({reason}): delete it and run with --update-baseline") from None
    return parse_baseline(document, path)


_TEXT_FIELDS = tuple(
    one.name for one in fields(Baseline) if one.name not in ("efficiencies", "known_failures", "picks")
)
_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}[a-z0-9_]|[a-z0-9]")
_ENDS_AS_HASHED = re.compile(r"-[0-9a-f]{8}$")


def parse_baseline(document: Any, path: Path) -> Baseline:
    """The inverse of `baseline_document`. path: the file, for the message of a GateError."""

    def wrong(what: str) -> GateError:
        return GateError(f"{path} is not a baseline: {what}; delete it and run with --update-baseline")

    if not isinstance(document, dict):
        raise wrong("it is not a JSON object")
    if document.get("schema") not in _READ_SCHEMAS:
        read = " and ".join(map(str, _READ_SCHEMAS))
        raise wrong(f"its schema is {document.get('schema')!r}, this version reads {read}")
    whole, document = document, {"ranked_by": "", "picks": {}, **document}
    for name in _TEXT_FIELDS:
        if not isinstance(document.get(name), str):
            raise wrong(f"its {name} is not text")
    efficiencies, known = document.get("efficiencies"), document.get("known_failures")
    if not isinstance(efficiencies, dict) or not isinstance(known, dict):
        raise wrong("it has no efficiencies or no known_failures")
    for problem, value in efficiencies.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value) and 0 <= value <= 1):
            raise wrong(f"the efficiency of {problem!r} is {value!r}, not a fraction from 0 to 1 or null")
    for problem, kernels in known.items():
        if not isinstance(kernels, dict):
            raise wrong(f"known_failures of {problem!r} is not an object of kernel names and statuses")
        for kernel, status in kernels.items():
            if status not in FAILURE_STATUSES:
                raise wrong(f"{kernel!r} on {problem!r} is known as {status!r}: not a failure")
    check_seal(whole, path, GateError, "restore it from version control, or run with --update-baseline")
    return Baseline(
        **{name: document[name] for name in _TEXT_FIELDS},
        efficiencies=efficiencies,
        known_failures=known,
        picks=_picks(document["picks"], wrong),
    )


def _pick_row(margin: Margin) -> dict[str, Any]:
    """Rounds to twelve significant digits: more than a clock resolves, and the same text on every machine.
    A drift of 0 is left out."""
    row = asdict(margin)
    if not margin.drift:
        del row["drift"]
    return {
        name: float(f"{value:.12g}") if isinstance(value, float) else value for name, value in row.items()
    }


def _picks(rows: Any, wrong: Callable[[str], GateError]) -> dict[str, Margin]:
    if not isinstance(rows, dict):
        raise wrong("its picks are not an object")
    found = {}
    for problem, row in rows.items():
        values = {"drift": 0.0, **row} if isinstance(row, dict) else {}
        for one in fields(Margin):
            if not _fits(one.name, str(one.type), values.get(one.name)):
                raise wrong(f"the {one.name} of the pick for {problem!r} is {values.get(one.name)!r}")
        found[problem] = Margin(**{one.name: values[one.name] for one in fields(Margin)})
    return found


def _fits(name: str, kind: str, value: Any) -> bool:
    """Whether a value is valid for this field of a Margin."""
    if kind == "str":
        return isinstance(value, str)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return False
    return value > 0 if name == "dof" else value >= 0 or name in ("log_ratio", "drift")
