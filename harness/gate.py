"""Acceptance criteria, baselines and the verdict, which is a pure function of data.

Efficiencies are fractions (0 to 1) in tables and files; what a criterion compares is in percent, and
differences between percentages are points. docs/gate.md is the prose of this module.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.atomic_file import write_atomically
from harness.errors import GateError
from harness.selection import COVERED

FAILURE_STATUSES = ("wrong", "crash", "timeout", "build_error")
"""Statuses that are a kernel's own failure. `unsupported` is an answer, `noisy` and `device_lost` are the
machine's doing: they are counted and shown, and none of them counts for an oracle."""

BASELINE_SCHEMA = 1

PASSED = "passed"
FAILED = "failed"
INCOMPLETE = "incomplete"
NO_BASELINE = "no baseline"
NO_MODEL = "no model"

_LARGEST_BASELINE_BYTES = 256 * 2**20
_DECIMALS = 8  # of an efficiency, in the file and in what is compared with it
_ROUNDING_POINTS = 1e-6


@dataclass(frozen=True)
class Criteria:
    """By how many points (of percent) a run may be worse than its baseline.

    Raises GateError for limits that are not numbers from 0 to 100.
    """

    mean_points: float = 0.5
    median_points: float = 0.5
    p10_points: float = 2.0
    problem_points: float = 10.0
    coverage_points: float = 0.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= 100:
                raise GateError(
                    f"the criterion {one.name} = {value!r} is not a number of points from 0 to 100"
                )


@dataclass(frozen=True)
class Baseline:
    """The accepted state of one model on one target device and problem set.

    efficiencies: problem id -> fraction, or None for a problem of the set that was not covered.
    known_failures: problem id -> kernel name -> one of FAILURE_STATUSES.
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
    efficiencies: Mapping[str, float | None]
    known_failures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def coverage_percent(self) -> float:
        """Share of the set's problems that had an efficiency."""
        covered = sum(value is not None for value in self.efficiencies.values())
        return 100.0 * covered / len(self.efficiencies) if self.efficiencies else 0.0

    def knows(self, problem: str, kernel: str) -> str | None:
        """The status that a pair is known to fail with, or None."""
        return self.known_failures.get(problem, {}).get(kernel)


@dataclass(frozen=True)
class Criterion:
    """One criterion applied. value and baseline are in `unit`; passed is None where it was not applied,
    for the reason in `note`. limit: the least value that passes, or the most for "largest loss" and
    "new failures"."""

    name: str
    unit: str
    value: float | None
    baseline: float | None
    limit: float | None
    passed: bool | None
    note: str = ""


@dataclass(frozen=True)
class Loss:
    """A problem that lost more than the criteria allow."""

    problem: str
    efficiency_percent: float
    baseline_percent: float

    @property
    def loss_points(self) -> float:
        return self.baseline_percent - self.efficiency_percent


@dataclass(frozen=True)
class Failure:
    """A pair that failed; `known` is the status in the baseline, None where it is new."""

    problem: str
    kernel: str
    status: str
    detail: str
    known: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What the criteria say of a run, with all that is needed to understand it.

    state: passed, failed, incomplete (nothing failed, but the run was stopped or narrowed, so a criterion
    could not be applied), no baseline, or no model. Only `failed` fails a run.
    compared: problems with an efficiency in both. new_problems and gone_problems: in the run's set or the
    baseline's alone. newly_uncovered: covered in the baseline, not now. healed: known failures, ok now.
    """

    state: str
    message: str
    criteria: tuple[Criterion, ...] = ()
    compared: int = 0
    new_problems: tuple[str, ...] = ()
    gone_problems: tuple[str, ...] = ()
    newly_uncovered: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    new_failures: tuple[Failure, ...] = ()
    known_failures: tuple[Failure, ...] = ()
    healed: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.state == FAILED

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: plain numbers, strings, lists."""
        out = asdict(self)
        for entry, loss in zip(out["losses"], self.losses, strict=True):
            entry["loss_points"] = loss.loss_points
        return out


def failures_of(final: pd.DataFrame) -> pd.DataFrame:
    """Of settled measurements (harness.oracle) the pairs that failed: problem, kernel, status, detail,
    the gravest status first, then by name."""
    failed = final[final["status"].isin(FAILURE_STATUSES)]
    columns = ["problem", "kernel", "status", "detail"]
    failed = failed.reindex(columns=columns).assign(
        detail=failed["detail"].fillna("") if "detail" in failed else ""
    )
    gravity = failed["status"].map({status: place for place, status in enumerate(FAILURE_STATUSES)})
    order = failed.assign(gravity=gravity).sort_values(["gravity", "problem", "kernel"], ignore_index=True)
    return order[columns]


def judge(
    selection: pd.DataFrame,
    final: pd.DataFrame,
    baseline: Baseline | None,
    criteria: Criteria,
    *,
    complete: bool = True,
) -> Verdict:
    """The criteria applied to a selection (harness.selection) and its settled measurements.

    Mean, median and P10 compare over the problems that have an efficiency in both; coverage over the
    problems that are in both sets. complete: whether every pair of the run was measured; where it is
    False, coverage is not held against the run.
    """
    failures = _failures(final, baseline)
    new = tuple(failure for failure in failures if failure.known is None)
    known = tuple(failure for failure in failures if failure.known is not None)
    if baseline is None:
        return Verdict(*_without_baseline(selection), new_failures=new)
    now = _efficiencies(selection)
    then = baseline.efficiencies
    shared = [problem for problem in now if problem in then]
    common = [problem for problem in shared if now[problem] is not None and then[problem] is not None]
    new_percent = np.array([100.0 * (now[problem] or 0.0) for problem in common])
    old_percent = np.array([100.0 * (then[problem] or 0.0) for problem in common])
    losses = _losses(common, new_percent, old_percent, criteria)
    uncovered = tuple(problem for problem in shared if now[problem] is None and then[problem] is not None)

    applied = [
        _average("mean", np.mean, new_percent, old_percent, criteria.mean_points),
        _average("median", np.median, new_percent, old_percent, criteria.median_points),
        _average("P10", _p10, new_percent, old_percent, criteria.p10_points),
        _largest_loss(new_percent, old_percent, criteria.problem_points),
        _coverage(shared, now, then, criteria.coverage_points, compared=bool(common), complete=complete),
        Criterion("new failures", "pairs", float(len(new)), 0.0, 0.0, not new),
    ]
    state = _state(applied)
    return Verdict(
        state=state,
        message=_message(state, applied),
        criteria=tuple(applied),
        compared=len(common),
        new_problems=tuple(problem for problem in now if problem not in then),
        gone_problems=tuple(sorted(problem for problem in then if problem not in now)),
        newly_uncovered=uncovered,
        losses=losses,
        new_failures=new,
        known_failures=known,
        healed=_healed(final, baseline),
        notes=_notes(failures),
    )


def make_baseline(
    selection: pd.DataFrame,
    final: pd.DataFrame,
    *,
    previous: Baseline | None = None,
    **identity: str,
) -> Baseline:
    """The baseline that accepts this run. identity: the string fields of Baseline.

    With `previous`, what this run did not measure is kept from it: efficiencies of the run's problems that
    are not covered now for want of a measurement, and known failures of pairs that were not measured.

    Raises GateError where no problem has an efficiency: such a baseline would accept anything.
    """
    efficiencies: dict[str, float | None] = dict(_efficiencies(selection))
    if all(value is None for value in efficiencies.values()):
        raise GateError("no problem of this run has an efficiency: there is nothing to accept as a baseline")
    known: dict[str, dict[str, str]] = {}
    if previous is not None:
        measured = set(zip(final["problem"], final["kernel"], strict=True))
        unmeasured = selection["coverage"].isin(["not measured", "pick not measured"])
        for problem in selection.loc[unmeasured, "problem"]:
            efficiencies[problem] = previous.efficiencies.get(problem)
        for problem, kernels in previous.known_failures.items():
            for kernel, status in kernels.items():
                if problem in efficiencies and (problem, kernel) not in measured:
                    known.setdefault(problem, {})[kernel] = status
    for row in failures_of(final).itertuples(index=False):
        known.setdefault(str(row.problem), {})[str(row.kernel)] = str(row.status)
    return Baseline(**identity, efficiencies=efficiencies, known_failures=known)


# ---- files ------------------------------------------------------------------------------------------


def baseline_path(root: Path, model: str, device: str, problem_set: str, kernel_set: str = "default") -> Path:
    """root/<model>/<device>/<problem set>/<kernel set>.json, each part made safe by `slug`.

    The kernel set is part of it because the oracle, and so every efficiency, depends on the pool.
    """
    return root / slug(model) / slug(device) / slug(problem_set) / f"{slug(kernel_set)}.json"


def slug(name: str) -> str:
    """A file name for any text: lower-case letters, digits, dot, dash and underscore, 1 to 64 of them.

    Text that is such a name already stays as it is; other text is spelled as near as that allows and ends
    in eight hex digits of its SHA-256, so different texts get different names. Raises GateError for "".
    """
    if not name:
        raise GateError("a baseline is kept by model, device and problem set: none of them may be empty")
    if _SAFE_NAME.fullmatch(name) and not _ENDS_AS_HASHED.search(name):
        return name
    near = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:48].rstrip("-._")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{near or 'x'}-{digest}"


def baseline_document(baseline: Baseline) -> dict[str, Any]:
    """The baseline as JSON: what its file holds, and what verdict.json quotes."""
    return {
        "schema": BASELINE_SCHEMA,
        **{name: getattr(baseline, name) for name in _TEXT_FIELDS},
        "coverage_percent": round(baseline.coverage_percent, 6),
        "efficiencies": {
            problem: None if value is None else round(float(value), _DECIMALS)
            for problem, value in baseline.efficiencies.items()
        },
        "known_failures": {
            problem: dict(kernels) for problem, kernels in baseline.known_failures.items() if kernels
        },
    }


def save_baseline(baseline: Baseline, path: Path) -> None:
    """Writes the file whole or not at all; equal baselines give equal bytes. Raises GateError."""
    text = (
        json.dumps(baseline_document(baseline), indent=1, sort_keys=True, allow_nan=False, ensure_ascii=True)
        + "\n"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode("ascii"))
    except OSError as error:
        raise GateError(f"the baseline {path} cannot be written: {error.strerror or error}") from None


def load_baseline(path: Path) -> Baseline | None:
    """The baseline in a file, None where there is no file. Raises GateError for a file that is none."""
    try:
        if path.stat().st_size > _LARGEST_BASELINE_BYTES:
            raise GateError(f"{path} is larger than {_LARGEST_BASELINE_BYTES >> 20} MiB: it is no baseline")
        document = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GateError(f"the baseline {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise GateError(f"{path} is not JSON ({reason}): delete it and run with --update-baseline") from None
    return parse_baseline(document, path)


_TEXT_FIELDS = tuple(
    one.name for one in fields(Baseline) if one.name not in ("efficiencies", "known_failures")
)
_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}[a-z0-9_]|[a-z0-9]")
_ENDS_AS_HASHED = re.compile(r"-[0-9a-f]{8}$")


def parse_baseline(document: Any, path: Path) -> Baseline:
    """The inverse of `baseline_document`. path: where it was read, for the message of the GateError."""

    def wrong(what: str) -> GateError:
        return GateError(f"{path} is not a baseline: {what}; delete it and run with --update-baseline")

    if not isinstance(document, dict):
        raise wrong("it is not a JSON object")
    if document.get("schema") != BASELINE_SCHEMA:
        raise wrong(f"its schema is {document.get('schema')!r}, this version reads {BASELINE_SCHEMA}")
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
    return Baseline(
        **{name: document[name] for name in _TEXT_FIELDS}, efficiencies=efficiencies, known_failures=known
    )


# ---- criteria ---------------------------------------------------------------------------------------


def _efficiencies(selection: pd.DataFrame) -> dict[str, float | None]:
    covered = (selection["coverage"] == COVERED).tolist()
    values = selection["efficiency"].astype("float64").tolist()
    problems = selection["problem"].tolist()
    return {
        str(problem): round(float(value), _DECIMALS) if is_covered else None
        for problem, value, is_covered in zip(problems, values, covered, strict=True)
    }


def _without_baseline(selection: pd.DataFrame) -> tuple[str, str]:
    """(state, message) of a run that there is nothing to compare with."""
    if not selection["pick_kernel"].notna().any():
        return NO_MODEL, "the kernels were not ranked: there is nothing to judge"
    if not (selection["coverage"] == COVERED).any():
        return NO_BASELINE, "the criteria were not applied, and no problem has an efficiency"
    return NO_BASELINE, "the criteria were not applied; --update-baseline accepts this run as the baseline"


def _p10(percent: np.ndarray) -> float:
    return float(np.percentile(percent, 10))


def _average(name: str, figure: Any, new: np.ndarray, old: np.ndarray, points: float) -> Criterion:
    if not len(new):
        return Criterion(name, "%", None, None, None, None, _NOTHING_IN_COMMON)
    value, accepted = float(figure(new)), float(figure(old))
    limit = accepted - points
    return Criterion(name, "%", value, accepted, limit, value >= limit - _ROUNDING_POINTS)


def _largest_loss(new: np.ndarray, old: np.ndarray, points: float) -> Criterion:
    if not len(new):
        return Criterion("largest loss", "points", None, None, points, None, _NOTHING_IN_COMMON)
    loss = max(float((old - new).max()), 0.0)
    over = int((old - new > points + _ROUNDING_POINTS).sum())
    note = f"{over} problem{'s' if over > 1 else ''} lost more" if over else ""
    return Criterion("largest loss", "points", loss, 0.0, points, not over, note)


def _coverage(
    shared: Sequence[str],
    now: Mapping[str, float | None],
    then: Mapping[str, float | None],
    points: float,
    *,
    compared: bool,
    complete: bool,
) -> Criterion:
    if not shared:
        # A gate that is armed does not disarm itself because the set's file was exchanged.
        passed = False if complete else None
        return Criterion(
            "coverage", "%", None, None, None, passed, "no problem of this run is in the baseline"
        )
    value = 100.0 * sum(now[problem] is not None for problem in shared) / len(shared)
    accepted = 100.0 * sum(then[problem] is not None for problem in shared) / len(shared)
    limit = accepted - points
    passed = compared and value >= limit - _ROUNDING_POINTS
    if not passed and not complete:
        return Criterion(
            "coverage", "%", value, accepted, limit, None, "not every pair of the run was measured"
        )
    return Criterion("coverage", "%", value, accepted, limit, passed, "" if compared else _NOTHING_IN_COMMON)


_NOTHING_IN_COMMON = "no problem has an efficiency here and in the baseline"


def _losses(common: Sequence[str], new: np.ndarray, old: np.ndarray, criteria: Criteria) -> tuple[Loss, ...]:
    over = [
        Loss(problem, float(now), float(then))
        for problem, now, then in zip(common, new, old, strict=True)
        if then - now > criteria.problem_points + _ROUNDING_POINTS
    ]
    return tuple(sorted(over, key=lambda loss: (-loss.loss_points, loss.problem)))


def _failures(final: pd.DataFrame, baseline: Baseline | None) -> tuple[Failure, ...]:
    rows = failures_of(final).astype(str).itertuples(index=False, name=None)
    return tuple(
        Failure(problem, kernel, status, detail, baseline.knows(problem, kernel) if baseline else None)
        for problem, kernel, status, detail in rows
    )


def _healed(final: pd.DataFrame, baseline: Baseline) -> tuple[Failure, ...]:
    if not baseline.known_failures:
        return ()
    suspects = final[(final["status"] == "ok") & final["problem"].isin(list(baseline.known_failures))]
    return tuple(
        Failure(problem, kernel, "ok", "", known)
        for problem, kernel in zip(suspects["problem"], suspects["kernel"], strict=True)
        if (known := baseline.knows(problem, kernel)) is not None
    )


def _state(criteria: Sequence[Criterion]) -> str:
    if any(criterion.passed is False for criterion in criteria):
        return FAILED
    return INCOMPLETE if any(criterion.passed is None for criterion in criteria) else PASSED


def _message(state: str, criteria: Sequence[Criterion]) -> str:
    if state == PASSED:
        return "every criterion is met"
    if state == FAILED:
        return "criteria not met: " + ", ".join(
            criterion.name for criterion in criteria if criterion.passed is False
        )
    return "nothing failed, but not applied: " + ", ".join(c.name for c in criteria if c.passed is None)


def _notes(failures: Sequence[Failure]) -> tuple[str, ...]:
    changed = sum(failure.known is not None and failure.known != failure.status for failure in failures)
    return (f"known failures that now fail in another way: {changed}",) if changed else ()
