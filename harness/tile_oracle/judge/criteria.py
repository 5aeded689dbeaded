"""The acceptance criteria: their limits, each applied as a comparison of values, and decided by intervals.

Criteria compare percentages; differences between percentages are in points. Each bound of an interval holds
with `confidence`; the bound that decides a failure holds with a higher one. A criterion fails if its whole
interval is above the limit. It passes if the value itself is within the limit and a loss of twice the limit
can be excluded. Else it cannot tell. The confidence for a single problem's loss is raised for noisy problems,
until at most 2 of 100 unchanged runs fail (tile_oracle.judge.statistics.finding_confidences).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from tile_oracle.judge.bootstrap import Array, Statistic
from tile_oracle.judge.statistics import Changes, Side, finding_confidences, loss_bounds

PASS = "pass"
FAIL = "fail"
UNDECIDED = "cannot tell"
NOT_APPLIED = "not applied"
OUTCOMES = (PASS, FAIL, UNDECIDED, NOT_APPLIED)
"""Outcomes of a criterion. `cannot tell`: the limit is inside its interval. `not applied`: there was no data,
or only a part of the run was measured."""

INTERVAL = "interval"
PUBLISHED = "published"

ROUNDING_POINTS = 1e-6
"""Smaller differences are rounding errors."""

_NOTHING_IN_COMMON = "no problem was judged in both runs"


_Points = Annotated[float, msgspec.Meta(ge=0, le=100)]
_Rule = Annotated[str, msgspec.Meta(pattern=f"^({INTERVAL}|{PUBLISHED})$")]
_Confidence = Annotated[float, msgspec.Meta(gt=0.5, lt=1)]


@dataclass(frozen=True)
class Criteria:
    """How much worse than its baseline, in percentage points, a run may be, and the rule that decides.

    rule: INTERVAL (a criterion fails if its whole interval is beyond the limit) or PUBLISHED (plain values
    are compared). confidence: that of each of an interval's two limits.
    """

    mean_points: _Points = 0.5
    median_points: _Points = 0.5
    p10_points: _Points = 2.0
    problem_points: _Points = 10.0
    coverage_points: _Points = 0.0
    rule: _Rule = INTERVAL
    confidence: _Confidence = 0.95


@dataclass(frozen=True)
class Criterion:
    """One criterion applied. value, baseline and limit are in `unit`.

    outcome: one of OUTCOMES. limit: the least value that passes, or the most for "largest loss" and "new
    failures". low, high: the interval of value - baseline in points, each at `confidence` (a fraction); None
    for a plain comparison. note: a remark for the table. cause: why the outcome is `cannot tell`. command:
    what would settle it.
    """

    name: str
    unit: str
    value: float | None
    baseline: float | None
    limit: float | None
    outcome: str
    note: str = ""
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    cause: str = ""
    command: str = ""

    @property
    def passed(self) -> bool | None:
        """True or False, None where the criterion cannot tell or was not applied."""
        return {PASS: True, FAIL: False}.get(self.outcome)


def average(name: str, statistic: Statistic, new: np.ndarray, old: np.ndarray, points: float) -> Criterion:
    """Applies a limit: the statistic (percent) of the new efficiencies may be lower than that of the old ones
    by `points`."""
    if not len(new):
        return Criterion(name, "%", None, None, None, NOT_APPLIED, _NOTHING_IN_COMMON)
    value, accepted = float(statistic(new)), float(statistic(old))
    limit = accepted - points
    return Criterion(name, "%", value, accepted, limit, _outcome(value >= limit - ROUNDING_POINTS))


def largest_loss(new: np.ndarray, old: np.ndarray, points: float) -> Criterion:
    """No problem may have lost more than `points`; new and old: efficiencies in percent, paired."""
    if not len(new):
        return Criterion("largest loss", "points", None, None, points, NOT_APPLIED, _NOTHING_IN_COMMON)
    loss = max(float((old - new).max()), 0.0)
    over = int((old - new > points + ROUNDING_POINTS).sum())
    note = f"{over} problem{'s' if over > 1 else ''} lost more than {points:g} points" if over else ""
    return Criterion("largest loss", "points", loss, 0.0, points, _outcome(not over), note)


def coverage(
    shared: Sequence[str],
    now: Mapping[str, float | None],
    then: Mapping[str, float | None],
    points: float,
    *,
    compared: bool,
    complete: bool,
    undecided: Collection[str] = (),
) -> Criterion:
    """The share of covered problems may be lower than the baseline's by `points`.

    shared: the problems that are in both sets; now, then: their efficiencies. compared: whether any has one
    in both. complete: whether the run measured all that it could. undecided: problems whose pick is too
    noisy to be timed: where these alone are missing, the criterion cannot tell.
    """
    if not shared:
        # A changed problem set must not disable the gate.
        note = "no problem of this run is in the baseline"
        return Criterion("coverage", "%", None, None, None, FAIL if complete else NOT_APPLIED, note)
    value = 100.0 * sum(now[problem] is not None for problem in shared) / len(shared)
    accepted = 100.0 * sum(then[problem] is not None for problem in shared) / len(shared)
    limit = accepted - points
    met = compared and value >= limit - ROUNDING_POINTS
    if not met and not complete:
        note = "not every pair of the run was measured"
        return Criterion("coverage", "%", value, accepted, limit, NOT_APPLIED, note)
    note = "" if compared else _NOTHING_IN_COMMON
    doubtful = sum(problem in undecided and then[problem] is not None for problem in shared)
    if not met and doubtful and value + 100.0 * doubtful / len(shared) >= limit - ROUNDING_POINTS:
        cause = f"{doubtful} undecided: the pick's time is too noisy"
        return Criterion("coverage", "%", value, accepted, limit, UNDECIDED, note, cause=cause)
    return Criterion("coverage", "%", value, accepted, limit, _outcome(met), note)


def new_failures(count: int) -> Criterion:
    """No pair may fail that is not a known failure of the baseline. count: number of new failures."""
    return Criterion("new failures", "pairs", float(count), 0.0, 0.0, _outcome(not count))


def _outcome(met: bool) -> str:
    return PASS if met else FAIL


_NAMED = 2
_FINDING = 0.99
"""Confidence of the bound that decides whether a statistic fails: three statistics are tested, and at most 2
of 100 unchanged runs should fail."""
_SEEN = 2.0
"""A criterion passes only if a loss of this many times its limit would have been detected."""
_UNRESOLVED_SHARE = 0.01
"""Fraction of the problems that may be too noisy for that. The largest loss then passes with a note."""


def interval_average(
    name: str,
    statistic: Statistic,
    problems: Sequence[str],
    now: Side,
    then: Side,
    points: float,
    confidence: float,
    changes: Changes | None = None,
) -> Criterion:
    """The statistic may be lower than the baseline's by `points`. changes: draws of these sides, if they
    exist already."""
    plain = average(name, statistic, 100.0 * now.efficiency, 100.0 * then.efficiency, points)
    if plain.outcome == NOT_APPLIED:
        return plain
    changes = changes or Changes(now, then)
    low, high = changes.interval(statistic, confidence)[0], changes.interval(statistic, _FINDING)[1]
    outcome = _decided(plain.outcome == PASS, -high, -low, points)
    decided = replace(plain, outcome=outcome, low=low, high=high, confidence=confidence)
    if outcome != UNDECIDED:
        return decided
    doubt = np.hypot(now.sigma * now.efficiency, then.sigma * then.efficiency)
    most = [problems[place] for place in np.argsort(-doubt, kind="stable")[:_NAMED] if doubt[place] > 0]
    cause = f"the change lies between {low:+.2f} and {high:+.2f} points"
    return replace(decided, cause=cause + (f"; most of the doubt is in {' and '.join(most)}" if most else ""))


def interval_largest_loss(
    problems: Sequence[str], now: Side, then: Side, points: float, confidence: float
) -> tuple[Criterion, Array, Array]:
    """No problem may have lost more than `points`. Also returns the lower and upper limits of every problem's
    loss, in points."""
    plain = largest_loss(100.0 * now.efficiency, 100.0 * then.efficiency, points)
    if plain.outcome == NOT_APPLIED:
        return plain, np.empty(0), np.empty(0)
    _, high = loss_bounds(now, then, confidence)
    low, _ = loss_bounds(now, then, finding_confidences(now, then, points, confidence))
    loss = 100.0 * (then.efficiency - now.efficiency)
    found = int((low > points + ROUNDING_POINTS).sum())
    over = loss > points + ROUNDING_POINTS
    unresolved = ~over & (high > max(_SEEN * points, points + ROUNDING_POINTS))
    note = cause = ""
    if found:
        outcome, note = FAIL, f"{found} problem{'s' if found > 1 else ''} lost more than {points:g} points"
    elif over.any():
        outcome = UNDECIDED
        cause = f"the loss may be more or less in {_names(problems, loss, over)}"
    elif unresolved.sum() > _UNRESOLVED_SHARE * len(problems):
        outcome = UNDECIDED
        cause = f"a loss of {_SEEN * points:g} points may hide in {_names(problems, high, unresolved)}"
    else:
        outcome = PASS
        if unresolved.any():
            note = f"{int(unresolved.sum())} too noisy to tell: {_names(problems, high, unresolved)}"
    decided = replace(
        plain,
        outcome=outcome,
        low=max(float(low.max()), 0.0),
        high=max(float(high.max()), 0.0),
        confidence=confidence,
        note=note,
        cause=cause,
    )
    return decided, low, high


def _names(problems: Sequence[str], by: Array, which: npt.NDArray[np.bool_]) -> str:
    """Returns the first chosen problems, sorted by value, largest first, and the number of the others."""
    chosen = [problems[place] for place in np.argsort(-by, kind="stable") if which[place]]
    more = f" and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""
    return ", ".join(chosen[:_NAMED]) + more


def suspects(
    problems: Sequence[str], criteria: Sequence[Criterion], low: Array, high: Array, limits: Criteria
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The problems to measure again before a loss is reported, and those of them whose own loss is undecided:
    the limit for one problem lies in its interval. The others may have lost enough to matter to a criterion
    that has not passed: a statistic falls by no more than every problem does. Each with the largest possible
    loss first.

    An undecided problem is a suspect even if its criterion passes, which it does if few problems are
    undecided: measuring them again is what detects a loss there.
    """
    if not len(high):
        return (), ()
    points = {
        "mean": limits.mean_points,
        "median": limits.median_points,
        "P10": limits.p10_points,
        "largest loss": limits.problem_points,
    }
    open_ = [points[one.name] for one in criteria if one.name in points and one.outcome in (FAIL, UNDECIDED)]
    limit = limits.problem_points + ROUNDING_POINTS
    undecided = (low <= limit) & (high > limit)
    places = np.argsort(-high, kind="stable").tolist()
    first = tuple(problems[place] for place in places if undecided[place])
    least = min(open_, default=np.inf)
    others = (problems[place] for place in places if high[place] > least and not undecided[place])
    return (*first, *others), first


def _decided(met: bool, low_loss: float, high_loss: float, points: float) -> str:
    """Returns the outcome from the plain value (met) and the interval of the loss."""
    if low_loss > points + ROUNDING_POINTS:
        return FAIL
    return PASS if met and high_loss <= _SEEN * points + ROUNDING_POINTS else UNDECIDED
