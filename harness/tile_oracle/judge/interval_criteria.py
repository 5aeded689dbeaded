"""The criteria decided by intervals. Each bound holds with `confidence`; the bound that decides a failure
holds with a higher one.

A criterion fails if its whole interval is above the limit. It passes if the value itself is within the limit
and a loss of twice the limit can be excluded. Else it cannot tell. The confidence for a single problem's loss
is raised for noisy problems, until at most 2 of 100 unchanged runs fail
(tile_oracle.judge.statistics.finding_confidences).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tile_oracle.judge.bootstrap import Array, Statistic
from tile_oracle.judge.criteria import (
    FAIL,
    NOT_APPLIED,
    PASS,
    ROUNDING_POINTS,
    UNDECIDED,
    Criteria,
    Criterion,
    average,
    largest_loss,
)
from tile_oracle.judge.statistics import (
    Changes,
    Side,
    finding_confidences,
    loss_bounds,
)

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
    outcome = _outcome(plain.outcome == PASS, -high, -low, points)
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
    that has not passed. Each with the largest possible loss first.

    An undecided problem is a suspect even if its criterion passes, which it does if few problems are
    undecided: measuring them again is what detects a loss there.
    """
    if not len(high):
        return (), ()
    points = {
        "mean": limits.mean_points,
        "median": limits.median_points,
        "P10": limits.mean_points,
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


def _outcome(met: bool, low_loss: float, high_loss: float, points: float) -> str:
    """Returns the outcome from the plain value (met) and the interval of the loss."""
    if low_loss > points + ROUNDING_POINTS:
        return FAIL
    return PASS if met and high_loss <= _SEEN * points + ROUNDING_POINTS else UNDECIDED
