"""Compares two sides problem by problem: faster, slower, the same, or not to be told.

A problem's change is ln(new latency / old latency) of its oracles, or of its picks. Its standard error adds
those of both latencies and the part by which two sessions differ beyond the noise within each of them. That
part comes from kernels that both sides measured: the scatter of their changes around the common change, less
what the errors explain (a random-effects model; Paule and Mandel, Journal of Research of the National Bureau
of Standards 87, 1982), estimated robustly so that real changes do not count as noise.

With a margin of m percent, and the 95 % interval of the change:

- *same*: the interval lies within the margin (two one-sided tests; Schuirmann, Journal of Pharmacokinetics
  and Biopharmaceutics 15, 1987);
- *slower*, *faster*: the interval does not contain 0, also after the correction for the number of problems
  (Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 1995, false discovery rate 5 %);
- *cannot tell*: all others.

A side is read from a run, records, an oracle file or a baseline. The standard error of a kernel's log latency
comes from its rounds after the sweep, else from the samples of its sweep. A few rounds give a poor estimate
of their scatter, so it is moderated by the typical scatter of the side, which counts as PRIOR_DOF degrees of
freedom (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import GateError, RecordError
from tile_oracle.files.vouched_files import MANIFEST_FILE
from tile_oracle.judge.baseline import Baseline, load_baseline
from tile_oracle.judge.failures import FAILURE_STATUSES
from tile_oracle.judge.noise import MAD, MEDIAN_ERROR, PRIOR_DOF, TYPICAL_NOISE
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.record.sealed_parquet import read_table
from tile_oracle.record.twins import is_measured, measured_kernels

Pair = tuple[str, str]
"""A problem's id and a kernel's name."""

_SELECTION = "selection.parquet"


@dataclass(frozen=True)
class Time:
    """A kernel's latency on a problem. sigma: standard error of its logarithm; dof: degrees of freedom."""

    kernel: str
    latency_ms: float
    sigma: float
    dof: float


@dataclass(frozen=True)
class Side:
    """One side. kind: "run", "records" or "baseline". times: of every ok pair; a baseline knows those of the
    pick and of its rival. oracles, picks: problem -> kernel; picks are absent from records. statuses: of
    every measured pair; of a baseline only its known failures. made_by: device, driver, ... -> text."""

    name: str
    kind: str
    times: Mapping[Pair, Time]
    oracles: Mapping[str, str]
    picks: Mapping[str, str]
    statuses: Mapping[Pair, str]
    problems: frozenset[str]
    made_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_kernels(self) -> bool:
        """Whether the side lists all the kernels that it measured."""
        return self.kind != "baseline"


def read_side(path: Path) -> Side:
    """Reads a run's folder, a baseline (.json) or records (.parquet or a folder of them).

    Raises RecordError, GateError.
    """
    if (path / MANIFEST_FILE).is_file() or path.suffix == ".csv":
        raise RecordError(
            f"{path} is a model or a file of picks: to compare models, add --records RECORDS to judge them by"
        )
    if path.suffix == ".json":
        baseline = load_baseline(path)
        if baseline is None:
            raise GateError(f"there is no baseline at {path}")
        return _of_baseline(path, baseline)
    records = load_records(path)
    if records.empty:
        raise RecordError(f"{path} holds no measurement")
    selection = path / _SELECTION
    return side_of_records(path.name or str(path), records, _picks(selection) if selection.is_file() else {})


def side_of_records(name: str, records: pd.DataFrame, picks: Mapping[str, str] | None = None) -> Side:
    """Returns the side of a table of records, with the picks of a run: problem -> kernel."""
    final = final_measurements(records)
    oracles = find_oracles(final).dropna(subset=["oracle_kernel"])
    pairs = list(zip(final["problem"], final["kernel"], strict=True))
    return Side(
        name,
        "records" if picks is None or not picks else "run",
        _times(records, final),
        dict(zip(oracles["problem"], oracles["oracle_kernel"], strict=True)),
        dict(picks or {}),
        dict(zip(pairs, final["status"].astype(str), strict=True)),
        frozenset(final["problem"]),
        _made_by(records),
    )


def _times(records: pd.DataFrame, final: pd.DataFrame) -> dict[Pair, Time]:
    """Returns the times of all ok pairs. A copy (record.twins) has the noise of the kernel that was
    measured."""
    ok = final[final["status"] == "ok"].assign(measured=lambda table: measured_kernels(table))
    noise = _noise(records, ok)
    found = {}
    columns = ("problem", "kernel", "measured", "latency_ms")
    for problem, kernel, measured, latency in zip(*(ok[name] for name in columns), strict=True):
        error, dof = noise.get((problem, measured), (TYPICAL_NOISE, PRIOR_DOF))
        found[problem, kernel] = Time(kernel, float(latency), error, dof)
    return found


def _noise(records: pd.DataFrame, ok: pd.DataFrame) -> dict[Pair, tuple[float, float]]:
    """(problem, measured kernel) -> standard error of its log latency, and degrees of freedom."""
    rows = records[(records["status"] == "ok") & is_measured(records)]
    rows = rows[["problem", "kernel", "round", "latency_ms", "spread", "samples"]].astype(
        {"latency_ms": "float64", "spread": "float64", "samples": "float64"}
    )
    rows["log"] = np.log(rows["latency_ms"])
    rows["within"] = (MEDIAN_ERROR * rows["spread"]) ** 2 / rows["samples"].where(rows["samples"] > 1)
    again = rows["round"] >= ROUND_FINAL
    keys = ["problem", "kernel"]
    grouped = rows[again].groupby(keys, observed=True)
    rounds = pd.DataFrame(
        {
            "count": grouped["log"].size(),
            "variance": grouped["log"].var(ddof=1),
            "within": grouped["within"].mean(),
        }
    )
    swept = rows[~again].groupby(keys, observed=True)["within"].mean()
    several = rounds[rounds["count"] > 1]
    typical = float(np.sqrt(several["variance"].mean())) if len(several) else math.nan
    sampled = float(np.sqrt(swept.median())) if swept.notna().any() else math.nan
    known = [value for value in (typical, sampled) if not math.isnan(value)]
    prior = max(known) if known else TYPICAL_NOISE
    table = pd.DataFrame(index=pd.MultiIndex.from_frame(ok[["problem", "measured"]].drop_duplicates()))
    count = rounds["count"].reindex(table.index).fillna(1.0).to_numpy(dtype=np.float64)
    own = rounds["variance"].reindex(table.index).fillna(0.0).to_numpy(dtype=np.float64)
    within = rounds["within"].reindex(table.index).fillna(swept.reindex(table.index)).fillna(0.0)
    dof = PRIOR_DOF + count - 1
    variance = (PRIOR_DOF * prior**2 + (count - 1) * own) / dof
    sigma = np.sqrt(np.maximum(variance, within.to_numpy(dtype=np.float64)) / count)
    return {
        (str(problem), str(kernel)): (float(error), float(free))
        for (problem, kernel), error, free in zip(table.index, sigma, dof, strict=True)
    }


def _of_baseline(path: Path, baseline: Baseline) -> Side:
    times: dict[Pair, Time] = {}
    oracles: dict[str, str] = {}
    for problem, margin in baseline.picks.items():
        error = margin.sigma / math.sqrt(2)
        times[problem, margin.pick] = Time(margin.pick, margin.pick_latency_ms, error, margin.dof)
        if margin.other:
            times[problem, margin.other] = Time(margin.other, margin.other_latency_ms, error, margin.dof)
        oracles[problem] = margin.pick if margin.log_ratio >= 0 or not margin.other else margin.other
    if not times:
        raise GateError(
            f"{path} has no times: baselines of older versions hold efficiencies only; "
            "--update-baseline writes a new one"
        )
    failures = {
        (problem, kernel): status
        for problem, kernels in baseline.known_failures.items()
        for kernel, status in kernels.items()
    }
    return Side(
        f"{path.parent.name}/{path.name}",
        "baseline",
        times,
        oracles,
        {problem: margin.pick for problem, margin in baseline.picks.items()},
        failures,
        frozenset(baseline.efficiencies),
        {"device": baseline.device, "model": baseline.model},
    )


def _picks(path: Path) -> dict[str, str]:
    table = read_table(path, ("problem", "pick_kernel")).to_pydict()
    if "pick_kernel" not in table or "problem" not in table:
        raise RecordError(f"{path} has no picks; replay: `pytest --problem-set SET --oracle={path.parent}`")
    pairs = zip(table["problem"], table["pick_kernel"], strict=True)
    return {str(problem): str(kernel) for problem, kernel in pairs if kernel is not None}


def _made_by(records: pd.DataFrame) -> dict[str, str]:
    """Device, driver and toolchain of the records, several joined by commas."""
    found = {}
    for name in ("device", "driver", "toolchain"):
        values = sorted({str(one) for one in records[name].dropna().unique()})
        found[name] = ", ".join(values[:4]) + (", ..." if len(values) > 4 else "")
    return found


Array = npt.NDArray[np.float64]

FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "same", "cannot tell"
OUTCOMES = (SLOWER, FASTER, UNKNOWN, SAME)

ORACLE, PICK = "oracle", "pick"

CONFIDENCE = 0.95
FALSE_DISCOVERIES = 0.05
MARGIN_PERCENT = 1.0


@dataclass(frozen=True)
class Change:
    """A ratio of new to old latency, with its 95 % interval, in percent: +5 is 5 % slower."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True)
class ProblemChange:
    """One problem: the kernels and latencies of both sides, the change, and the outcome."""

    problem: str
    old_kernel: str
    new_kernel: str
    old_ms: float
    new_ms: float
    change: Change
    outcome: str


@dataclass(frozen=True)
class NewFailure:
    """A pair that fails on the new side and did not fail on the old one. before: its old status, "" if the
    old side does not say."""

    problem: str
    kernel: str
    before: str
    status: str


@dataclass(frozen=True)
class Comparison:
    """Two sides compared. by: whose times, "oracle" or "pick". problems: of both sides, by id. gone, new:
    problems of one side only; untimed: problems of both without a time on one of them. mean: of all problems,
    geometric. alike: of pairs that both measured, geometric: a device or clock that changed moves all
    kernels. between_percent: standard deviation between the sessions. oracles_changed, picks_changed:
    (problem, old kernel, new kernel). gained, lost: kernels of one side only, None if a side does not list
    its kernels. failing: newly failing pairs."""

    old: Side
    new: Side
    by: str
    margin_percent: float
    problems: Sequence[ProblemChange]
    gone: Sequence[str]
    added: Sequence[str]
    untimed: Sequence[str]
    mean: Change | None
    alike: Change | None
    between_percent: float
    oracles_changed: Sequence[tuple[str, str, str]]
    picks_changed: Sequence[tuple[str, str, str]]
    gained: Sequence[str] | None
    lost: Sequence[str] | None
    failing: Sequence[NewFailure]

    @property
    def counts(self) -> Mapping[str, int]:
        """Outcome -> problems."""
        found = Counter(one.outcome for one in self.problems)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    def with_outcome(self, outcome: str) -> Sequence[ProblemChange]:
        """Returns the problems with this outcome, the largest change first."""
        chosen = [one for one in self.problems if one.outcome == outcome]
        return sorted(chosen, key=lambda one: (-abs(one.change.percent), one.problem))


def compare_sides(
    old: Side, new: Side, *, by: str = ORACLE, margin_percent: float = MARGIN_PERCENT
) -> Comparison:
    """Compares the problems that both sides have. Raises RecordError if there are none, or no picks."""
    shared = old.problems & new.problems
    if not shared:
        raise RecordError(f"{old.name} and {new.name} have no problem in common")
    chosen = [_chosen(side, by) for side in (old, new)]
    timed = sorted(problem for problem in shared if all(problem in one for one in chosen))
    pairs = [(chosen[0][problem], chosen[1][problem]) for problem in timed]
    common, between = _between_sessions(old, new)
    return Comparison(
        old,
        new,
        by,
        margin_percent,
        _judged(timed, pairs, between, margin_percent),
        sorted(old.problems - new.problems),
        sorted(new.problems - old.problems),
        sorted(shared - set(timed)),
        _mean(pairs, between),
        common,
        100 * between,
        _moved(old.oracles, new.oracles, shared),
        _moved(old.picks, new.picks, shared),
        *_kernels(old, new, shared),
        _newly_failing(old, new, shared),
    )


def _chosen(side: Side, by: str) -> dict[str, Time]:
    """Problem -> the time that is compared."""
    kernels = side.oracles if by == ORACLE else side.picks
    if by == PICK and not kernels:
        raise RecordError(f"{side.name} has no picks: compare by oracles, or give the run's folder")
    found = ((problem, side.times.get((problem, kernel))) for problem, kernel in kernels.items())
    return {problem: time for problem, time in found if time is not None}


def _is_same_data(old: Time, new: Time) -> bool:
    """Returns whether both are one measurement, as in a replay."""
    return old.kernel == new.kernel and math.isclose(old.latency_ms, new.latency_ms, rel_tol=1e-9)


def _between_sessions(old: Side, new: Side) -> tuple[Change | None, float]:
    """Returns the common change of the pairs that both measured, and the standard deviation between sessions
    of a log latency's change."""
    shared = [pair for pair in old.times if pair in new.times]
    if not shared:
        return None, 0.0
    changes = np.array([_log_change(old.times[pair], new.times[pair]) for pair in shared])
    variances = np.array([old.times[pair].sigma ** 2 + new.times[pair].sigma ** 2 for pair in shared])
    if not changes.any():
        return Change(0.0, 0.0, 0.0), 0.0
    centre = float(np.median(changes))
    scatter = MAD * float(np.median(np.abs(changes - centre)))
    between = math.sqrt(max(0.0, scatter**2 - float(np.median(variances))))
    by_problem: dict[str, list[float]] = {}
    for pair, change in zip(shared, changes, strict=True):
        by_problem.setdefault(pair[0], []).append(float(change))
    means = np.array([np.mean(values) for values in by_problem.values()])
    # Kernels of a problem change together, so the problems are the sample.
    error = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else scatter
    return _as_change(float(means.mean()), _quantile(max(len(means) - 1, 1)) * error), between


def _judged(
    problems: Sequence[str], pairs: Sequence[tuple[Time, Time]], between: float, margin_percent: float
) -> list[ProblemChange]:
    import scipy.stats  # not at the top: it is slow to import

    if not problems:
        return []
    logs = np.array([_log_change(*pair) for pair in pairs])
    errors = np.array([_error(*pair, between) for pair in pairs])
    dof = np.array([_freedom(*pair) for pair in pairs])
    reach = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, dof) * errors
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(errors > 0, np.abs(logs) / errors, np.where(logs != 0, np.inf, 0.0))
    p_values = 2 * scipy.stats.t.sf(ratio, dof)
    is_real = scipy.stats.false_discovery_control(p_values) <= FALSE_DISCOVERIES
    found = []
    for problem, (old, new), log, width, real in zip(problems, pairs, logs, reach, is_real, strict=True):
        change = _as_change(float(log), float(width))
        if -margin_percent <= change.low and change.high <= margin_percent:
            outcome = SAME
        elif real and (change.low > 0 or change.high < 0):
            outcome = SLOWER if change.low > 0 else FASTER
        else:
            outcome = UNKNOWN
        found.append(
            ProblemChange(problem, old.kernel, new.kernel, old.latency_ms, new.latency_ms, change, outcome)
        )
    return found


def _mean(pairs: Sequence[tuple[Time, Time]], between: float) -> Change | None:
    """Returns the geometric mean of the changes. The problems are given, so only their measurements vary."""
    if not pairs:
        return None
    logs = np.array([_log_change(*pair) for pair in pairs])
    error = math.sqrt(sum(_error(*pair, between) ** 2 for pair in pairs)) / len(pairs)
    return _as_change(float(logs.mean()), _quantile(math.inf) * error)


def _log_change(old: Time, new: Time) -> float:
    return 0.0 if _is_same_data(old, new) else math.log(new.latency_ms / old.latency_ms)


def _error(old: Time, new: Time, between: float) -> float:
    return 0.0 if _is_same_data(old, new) else math.sqrt(old.sigma**2 + new.sigma**2 + between**2)


def _freedom(old: Time, new: Time) -> float:
    """Degrees of freedom of the sum of both variances (Welch and Satterthwaite)."""
    parts = [(time.sigma**2, time.dof) for time in (old, new)]
    total = sum(part for part, _ in parts)
    return total**2 / sum(part**2 / dof for part, dof in parts) if total > 0 else min(old.dof, new.dof)


def _quantile(dof: float) -> float:
    import scipy.stats

    return float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, dof))


def _as_change(log: float, reach: float) -> Change:
    return Change(*(100 * math.expm1(one) for one in (log, log - reach, log + reach)))


def _moved(
    old: Mapping[str, str], new: Mapping[str, str], shared: Iterable[str]
) -> list[tuple[str, str, str]]:
    both = sorted(problem for problem in shared if problem in old and problem in new)
    return [(problem, old[problem], new[problem]) for problem in both if old[problem] != new[problem]]


def _kernels(
    old: Side, new: Side, shared: frozenset[str]
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Returns the kernels that only the new side and only the old side measured on the shared problems."""
    if not (old.has_kernels and new.has_kernels):
        return None, None
    before, after = (
        {kernel for problem, kernel in side.statuses if problem in shared} for side in (old, new)
    )
    return sorted(after - before), sorted(before - after)


def _newly_failing(old: Side, new: Side, shared: frozenset[str]) -> list[NewFailure]:
    found = []
    for (problem, kernel), status in sorted(new.statuses.items()):
        if problem not in shared or status not in FAILURE_STATUSES:
            continue
        before = _status(old, (problem, kernel))
        if before is not None and before not in FAILURE_STATUSES:
            found.append(NewFailure(problem, kernel, before, status))
    return found


def _status(side: Side, pair: Pair) -> str | None:
    """Returns a pair's status; None if the side did not measure it. A baseline names all of its failures."""
    return side.statuses.get(pair, None if side.has_kernels else "")
