"""The criteria decided by intervals: failed beyond the interval, passed within it, else cannot tell.

A criterion errs on its own with at most 1 - confidence on either side. Many problems are looked at for the
largest loss, so a problem's loss counts as found at 1 - (1 - confidence) / m, where m is the number of
problems whose interval reaches the limit at all (Bonferroni over these; the others, whose loss is surely
within the limit, cannot be found by mistake). A pass needs no such correction: every one has to be within.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.judge.criteria import (
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
from harness.judge.statistics import Array, Figure, Side, change_interval, loss_bounds, over_problems

_NAMED = 2


def mean(percent: Array) -> Array:
    """Over the last axis."""
    return np.asarray(percent.mean(axis=-1))


def median(percent: Array) -> Array:
    """Over the last axis."""
    return np.asarray(np.median(percent, axis=-1))


def p10(percent: Array) -> Array:
    """The 10th percentile over the last axis, with linear interpolation."""
    return np.asarray(np.percentile(percent, 10, axis=-1))


def interval_average(
    name: str,
    figure: Figure,
    problems: Sequence[str],
    now: Side,
    then: Side,
    points: float,
    confidence: float,
) -> Criterion:
    """`figure` may be lower than the baseline's by `points`."""
    plain = average(name, figure, 100.0 * now.efficiency, 100.0 * then.efficiency, points)
    if plain.outcome == NOT_APPLIED:
        return plain
    low, high = change_interval(now, then, figure, confidence)
    outcome = _outcome(-high, -low, points)
    decided = replace(
        plain,
        outcome=outcome,
        low=low,
        high=high,
        confidence=confidence,
        over_problems=over_problems(now, then, figure, confidence),
    )
    if outcome != UNDECIDED:
        return decided
    doubt = np.hypot(now.sigma * now.efficiency, then.sigma * then.efficiency)
    most = [problems[place] for place in np.argsort(-doubt, kind="stable")[:_NAMED] if doubt[place] > 0]
    cause = f"the change lies between {low:+.2f} and {high:+.2f} points"
    return replace(decided, cause=cause + (f"; most of the doubt is in {' and '.join(most)}" if most else ""))


def interval_largest_loss(
    problems: Sequence[str], now: Side, then: Side, points: float, confidence: float
) -> tuple[Criterion, Array, Array]:
    """No problem may have lost more than `points`; the limits of every problem's loss, too, in points."""
    plain = largest_loss(100.0 * now.efficiency, 100.0 * then.efficiency, points)
    if plain.outcome == NOT_APPLIED:
        return plain, np.empty(0), np.empty(0)
    _, high = loss_bounds(now, then, confidence)
    reaching = max(int((high > points + ROUNDING_POINTS).sum()), 1)
    low, _ = loss_bounds(now, then, 1.0 - (1.0 - confidence) / reaching)
    outcome = _outcome(float(low.max()), float(high.max()), points)
    found = int((low > points + ROUNDING_POINTS).sum())
    doubtful = [problems[i] for i in np.argsort(-high, kind="stable") if high[i] > points >= low[i]]
    note = f"{found} problem{'s' if found > 1 else ''} lost more" if found else ""
    cause = ""
    if outcome == UNDECIDED:
        more = f" and {len(doubtful) - _NAMED} more" if len(doubtful) > _NAMED else ""
        cause = f"the loss may be more or less in {', '.join(doubtful[:_NAMED])}{more}"
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


def suspects(
    problems: Sequence[str], criteria: Sequence[Criterion], high: Array, limits: Criteria
) -> tuple[str, ...]:
    """The problems to measure again before anything is called a loss, those with the largest possible loss
    first: of a criterion that has not passed, the problems whose loss may be above its limit."""
    if not len(high):
        return ()
    points = {
        "mean": limits.mean_points,
        "median": limits.median_points,
        "P10": limits.mean_points,
        "largest loss": limits.problem_points,
    }
    open_ = [points[one.name] for one in criteria if one.name in points and one.outcome in (FAIL, UNDECIDED)]
    if not open_:
        return ()
    least = min(open_)
    return tuple(problems[place] for place in np.argsort(-high, kind="stable") if high[place] > least)


def _outcome(low_loss: float, high_loss: float, points: float) -> str:
    if low_loss > points + ROUNDING_POINTS:
        return FAIL
    return PASS if high_loss <= points + ROUNDING_POINTS else UNDECIDED
