"""The verdict on a run, a pure function of its selection, a baseline and the criteria.

Efficiencies are fractions (0 to 1) in tables and files, percent in criteria.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.judge.baseline import Baseline, efficiencies_of
from tile_oracle.judge.bootstrap import mean, median, p10
from tile_oracle.judge.criteria import (
    FAIL,
    NOT_APPLIED,
    PUBLISHED,
    ROUNDING_POINTS,
    UNDECIDED,
    Criteria,
    Criterion,
    average,
    coverage,
    interval_average,
    interval_largest_loss,
    largest_loss,
    new_failures,
    suspects,
)
from tile_oracle.judge.failures import Failure, failures_of
from tile_oracle.judge.noise import Margin
from tile_oracle.judge.selection import COVERED
from tile_oracle.judge.selection import UNDECIDED as UNDECIDED_PICK
from tile_oracle.judge.statistics import (
    Changes,
    Side,
    between_sessions,
    paired_sides,
    same_picks,
    with_accepted_picks,
    with_sessions,
)

PASSED = "passed"
FAILED = "failed"
CANNOT_TELL = "cannot tell"
IN_SAMPLE = "in-sample"
INCOMPLETE = "incomplete"
NO_BASELINE = "no baseline"
NO_MODEL = "no model"

_TOLD_BETWEEN = 0.005


@dataclass(frozen=True)
class Loss:
    """A problem that lost more than the criteria allow. low, high: the limits of its loss in points, None
    for a plain comparison."""

    problem: str
    efficiency_percent: float
    baseline_percent: float
    low: float | None = None
    high: float | None = None

    @property
    def loss_points(self) -> float:
        return self.baseline_percent - self.efficiency_percent


@dataclass(frozen=True)
class Verdict:
    """The result of the criteria for a run, with the numbers behind it.

    state: passed; failed; cannot tell (nothing failed, but the limit of a criterion lies within its
    interval); in-sample (the model was trained on the judged problems); incomplete (nothing failed, but the
    run was stopped or narrowed, so a criterion could not be applied); no baseline; or no model.
    compared: number of problems with an efficiency in the run and in the baseline. new_problems and
    gone_problems: only in the run's set or only in the baseline's. newly_uncovered: covered in the baseline,
    not in the run. healed: known failures that are ok now. suspects: problems to measure again before a
    criterion is decided or a loss is reported. unsettled: those of them whose own loss may be more or less
    than the limit for one problem. undecided: problems whose pick is too noisy to time.
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
    suspects: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.state == FAILED

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: plain numbers, strings, lists."""
        out = asdict(self)
        for entry, loss in zip(out["losses"], self.losses, strict=True):
            entry["loss_points"] = loss.loss_points
        for entry, criterion in zip(out["criteria"], self.criteria, strict=True):
            entry["passed"] = criterion.passed
        return out


def judge(
    selection: pd.DataFrame,
    final: pd.DataFrame,
    baseline: Baseline | None,
    criteria: Criteria,
    *,
    complete: bool = True,
    margins: Mapping[str, Margin] | None = None,
    accepted_now: Mapping[str, Margin] | None = None,
    settled_by: str = "",
) -> Verdict:
    """Applies the criteria to a selection (tile_oracle.judge.selection) and its final measurements.

    Mean, median and P10 are compared over the problems that have an efficiency in both runs, coverage over
    the problems in both sets. complete: whether every pair of the run was measured; if not, coverage is not
    applied. margins: the noise of the picks (tile_oracle.judge.noise); without them all values count as
    exact. accepted_now: the noise of the baseline's picks in this run, where it picks other kernels
    (tile_oracle.judge.noise). settled_by: the command that would settle open criteria.
    """
    failures = _failures(final, baseline)
    new = tuple(failure for failure in failures if failure.known is None)
    if baseline is None:
        return Verdict(*_without_baseline(selection, complete), new_failures=new)
    both = _Both(efficiencies_of(selection), baseline.efficiencies)
    undecided = tuple(selection.loc[selection["coverage"] == UNDECIDED_PICK, "problem"].astype(str))
    new_side, old_side, between = _sides(both, baseline, margins or {}, criteria)
    figures, losses, again, unsettled = _compared(
        both.common, new_side, old_side, criteria, accepted_now or {}
    )
    covered = coverage(
        both.shared,
        both.now,
        both.then,
        criteria.coverage_points,
        compared=bool(both.common),
        complete=complete,
        undecided=undecided,
    )
    if covered.outcome == UNDECIDED:
        again = tuple(dict.fromkeys((*undecided, *again)))
    applied = [
        replace(one, command=settled_by) if one.outcome == UNDECIDED else one
        for one in (*figures, covered, new_failures(len(new)))
    ]
    state = _state(applied)
    return Verdict(
        state=state,
        message=_message(state, applied),
        criteria=tuple(applied),
        compared=len(both.common),
        new_problems=both.new,
        gone_problems=both.gone,
        newly_uncovered=both.newly_uncovered,
        losses=losses,
        new_failures=new,
        known_failures=tuple(failure for failure in failures if failure.known is not None),
        healed=_healed(final, baseline),
        notes=tuple(_notes(failures, between, both.common, new_side, margins or {})),
        suspects=again,
        unsettled=unsettled,
        undecided=undecided,
    )


@dataclass(frozen=True)
class _Both:
    """The efficiencies of a run (now) and of its baseline (then), by problem; None: not covered."""

    now: Mapping[str, float | None]
    then: Mapping[str, float | None]

    @cached_property
    def shared(self) -> list[str]:
        """The problems in both sets."""
        return [problem for problem in self.now if problem in self.then]

    @cached_property
    def common(self) -> list[str]:
        """The problems with an efficiency in both."""
        return [p for p in self.shared if self.now[p] is not None and self.then[p] is not None]

    @property
    def newly_uncovered(self) -> tuple[str, ...]:
        return tuple(p for p in self.shared if self.now[p] is None and self.then[p] is not None)

    @property
    def new(self) -> tuple[str, ...]:
        return tuple(problem for problem in self.now if problem not in self.then)

    @property
    def gone(self) -> tuple[str, ...]:
        return tuple(sorted(problem for problem in self.then if problem not in self.now))


def _without_baseline(selection: pd.DataFrame, complete: bool) -> tuple[str, str]:
    """(state, message) of a run without a baseline."""
    if not selection["pick_kernel"].notna().any():
        return NO_MODEL, "the kernels were not ranked: there is nothing to judge"
    if not (selection["coverage"] == COVERED).any():
        return NO_BASELINE, "not judged, and no problem has an efficiency"
    if not complete:
        return NO_BASELINE, "not judged, and not all of it is measured"
    return NO_BASELINE, "not judged yet. If you are happy with this run: --update-baseline"


def _sides(
    both: _Both, baseline: Baseline, margins: Mapping[str, Margin], criteria: Criteria
) -> tuple[Side, Side, float]:
    """This run and the baseline over the common problems, and the standard deviation of a margin's change
    between sessions, which the errors of both include."""
    if criteria.rule == PUBLISHED:  # compares plain values
        return *paired_sides(both.common, both.now, both.then, {}, {}), 0.0
    sides = paired_sides(both.common, both.now, both.then, margins, baseline.picks)
    between = between_sessions(*sides, same_picks(both.common, margins, baseline.picks))
    new, old = (with_sessions(side, between) for side in sides)
    return new, old, between


def _compared(
    common: Sequence[str], now: Side, then: Side, criteria: Criteria, accepted_now: Mapping[str, Margin]
) -> tuple[list[Criterion], tuple[Loss, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns the criteria over the common problems, the problems that lost too much, the suspects, and those
    of them that are unsettled."""
    new, old = 100.0 * now.efficiency, 100.0 * then.efficiency
    named = (
        ("mean", mean, criteria.mean_points),
        ("median", median, criteria.median_points),
        ("P10", p10, criteria.p10_points),
    )
    if criteria.rule == PUBLISHED:
        plain = [average(name, figure, new, old, points) for name, figure, points in named]
        over = old - new > criteria.problem_points + ROUNDING_POINTS
        losses = [Loss(common[i], float(new[i]), float(old[i])) for i in np.flatnonzero(over).tolist()]
        return [*plain, largest_loss(new, old, criteria.problem_points)], _worst_first(losses), (), ()
    changes = Changes(now, then) if len(common) else None
    applied = [
        interval_average(name, figure, common, now, then, points, criteria.confidence, changes)
        for name, figure, points in named
    ]
    points, confidence = criteria.problem_points, criteria.confidence
    then = with_accepted_picks(common, then, accepted_now)
    old = 100.0 * then.efficiency
    largest, low, high = interval_largest_loss(common, now, then, points, confidence)
    applied.append(largest)
    found = np.flatnonzero(low > points + ROUNDING_POINTS).tolist()
    losses = [Loss(common[i], float(new[i]), float(old[i]), float(low[i]), float(high[i])) for i in found]
    return applied, _worst_first(losses), *suspects(common, applied, low, high, criteria)


def _worst_first(losses: Sequence[Loss]) -> tuple[Loss, ...]:
    return tuple(sorted(losses, key=lambda loss: (-loss.loss_points, loss.problem)))


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
    """Returns the verdict's state: the most severe outcome decides."""
    outcomes = {criterion.outcome for criterion in criteria}
    order = ((FAIL, FAILED), (UNDECIDED, CANNOT_TELL), (NOT_APPLIED, INCOMPLETE))
    return next((state for outcome, state in order if outcome in outcomes), PASSED)


def _message(state: str, criteria: Sequence[Criterion]) -> str:
    def named(outcome: str) -> str:
        return ", ".join(criterion.name for criterion in criteria if criterion.outcome == outcome)

    if state == PASSED:
        return "every criterion is met"
    if state == FAILED:
        return f"criteria not met: {named(FAIL)}"
    if state == CANNOT_TELL:
        return f"nothing failed, but the measurements are too noisy to tell: {named(UNDECIDED)}"
    return f"nothing failed, but not applied: {named(NOT_APPLIED)}"


def _notes(
    failures: Sequence[Failure],
    between: float,
    common: Sequence[str],
    now: Side,
    margins: Mapping[str, Margin],
) -> Iterator[str]:
    """Yields what the reader of a verdict should know of its failures and its noise."""
    changed = sum(failure.known is not None and failure.known != failure.status for failure in failures)
    if changed:
        yield f"known failures that now fail in another way: {changed}"
    if between >= _TOLD_BETWEEN:
        yield (
            f"session-to-session noise is {100 * between:.1f} % (standard deviation of unchanged picks); the "
            "intervals account for it"
        )
    corrected = [
        abs(margins[problem].drift)
        for problem, sigma in zip(common, now.sigma, strict=True)
        if sigma > 0 and problem in margins and margins[problem].drift
    ]
    if corrected:
        yield (
            f"{len(corrected)} pick{'s were' if len(corrected) > 1 else ' was'} timed once; corrected for "
            f"machine drift since then (at most {100 * max(corrected):.1f} %)"
        )
