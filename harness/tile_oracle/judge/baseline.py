"""The accepted state of a model on a device and problem set, and its file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pandas as pd

from tile_oracle.errors import GateError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import read_object, typed
from tile_oracle.files.vouched_files import sealed_baseline
from tile_oracle.judge.failures import FAILURE_STATUSES, failures_of
from tile_oracle.judge.noise import Margin
from tile_oracle.judge.selection import COVERED, NOT_MEASURED, PICK_NOT_MEASURED, UNDECIDED

EFFICIENCY_DECIMALS = 8
"""Decimals of an efficiency, in a baseline's file and in comparisons with it."""


@dataclass(frozen=True)
class Baseline:
    """The accepted state of one model on one target device and problem set.

    efficiencies: problem id -> fraction, or None for a problem of the set that was not covered.
    known_failures: problem id -> kernel name -> one of FAILURE_STATUSES.
    picks: problem id -> the pick and the uncertainty of its efficiency.
    ranked_by: the origin of the picks: a model folder and the digest of its files, or the out-of-fold recipe.
    """

    model: str
    model_kind: str
    target: str
    arch: str
    device: str
    problem_set: str
    problem_set_sha256: str
    kernel_set: str
    created: str
    harness_version: str
    efficiencies: Mapping[str, Annotated[float, msgspec.Meta(ge=0, le=1)] | None]
    known_failures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    picks: Mapping[str, Margin] = field(default_factory=dict)
    ranked_by: str = ""

    @property
    def coverage_percent(self) -> float:
        """Share of the set's problems that had an efficiency."""
        covered = sum(value is not None for value in self.efficiencies.values())
        return 100.0 * covered / len(self.efficiencies) if self.efficiencies else 0.0

    def knows(self, problem: str, kernel: str) -> str | None:
        """Returns the status that a pair is known to fail with, or None."""
        return self.known_failures.get(problem, {}).get(kernel)


def efficiencies_of(selection: pd.DataFrame) -> dict[str, float | None]:
    """Problem id -> efficiency of the pick, rounded as files have it; None where not covered."""
    covered = (selection["coverage"] == COVERED).tolist()
    values = selection["efficiency"].astype("float64").tolist()
    problems = selection["problem"].tolist()
    return {
        str(problem): round(float(value), EFFICIENCY_DECIMALS) if is_covered else None
        for problem, value, is_covered in zip(problems, values, covered, strict=True)
    }


def make_baseline(
    selection: pd.DataFrame,
    final: pd.DataFrame,
    *,
    previous: Baseline | None = None,
    margins: Mapping[str, Margin] | None = None,
    **identity: str,
) -> Baseline:
    """Returns the baseline that accepts this run. identity: the string fields of Baseline. margins: the picks
    with the uncertainty of their efficiencies (tile_oracle.judge.noise).

    Values that this run did not measure are kept from `previous`: efficiencies of the run's problems that are
    not covered because a measurement is missing, and known failures of unmeasured pairs.

    Raises GateError if no problem has an efficiency: such a baseline would accept anything.
    """
    efficiencies: dict[str, float | None] = dict(efficiencies_of(selection))
    if all(value is None for value in efficiencies.values()):
        raise GateError("no problem of this run has an efficiency: there is nothing to accept as a baseline")
    known: dict[str, dict[str, str]] = {}
    picks = dict(margins or {})
    if previous is not None:
        measured = set(zip(final["problem"], final["kernel"], strict=True))
        unmeasured = selection["coverage"].isin([NOT_MEASURED, PICK_NOT_MEASURED, UNDECIDED])
        for problem in selection.loc[unmeasured, "problem"]:
            efficiencies[problem] = previous.efficiencies.get(problem)
            if problem in previous.picks:
                picks[problem] = previous.picks[problem]
        for problem, kernels in previous.known_failures.items():
            for kernel, status in kernels.items():
                if problem in efficiencies and (problem, kernel) not in measured:
                    known.setdefault(problem, {})[kernel] = status
    for row in failures_of(final).itertuples(index=False):
        known.setdefault(str(row.problem), {})[str(row.kernel)] = str(row.status)
    return Baseline(**identity, efficiencies=efficiencies, known_failures=known, picks=picks)


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
