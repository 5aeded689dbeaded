"""The acceptance criteria: their limits, and each of them applied as a plain comparison of values.

Criteria compare percentages; differences between percentages are in points.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from tile_oracle.judge.bootstrap import Statistic

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
    """Returns the statistic (percent) of the new efficiencies may be lower than that of the old ones by
    `points`."""
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
