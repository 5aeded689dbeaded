"""Intervals of the change from a baseline to a run: of each problem's loss, and of statistics over problems.

Both runs have the same problems, which are not a sample of others: only their measurements are uncertain. So
the interval of a statistic is a parametric bootstrap over the measured noise, paired by problem: the margins
of both runs are redrawn from their t distributions, and the statistic is computed for each draw (Efron and
Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6).

Two sessions differ by more than the rounds within each of them: memory addresses, clocks and other load
change. `between_sessions` estimates this part from the changes of the margins of unchanged picks, and
`with_sessions` adds it to the errors of both runs (a random-effects model; Paule and Mandel, Journal of
Research of the National Bureau of Standards 87, 1982). It uses the third quartile, so that a change of a
tenth of the problems, for instance a regression, does not count as noise.

The interval of one problem's loss combines the limits of both efficiencies by the method of variance
estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008), which does not assume symmetry: an
efficiency never exceeds 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tile_oracle.judge.bootstrap import Array, Statistic
from tile_oracle.judge.noise import Margin

_DRAWS = 2000
_SEED = 20260
_FALSE_ALARMS = 0.02
_STRICTER = (0.975, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999)
_AGREED = 0.975
_MOST_LOG = 20.0
"""A limit of log ratios, against overflow."""
_MOST_DRAWN = 2_000_000
_LEAST_PROBLEMS = 5
_MOVED_QUANTILE = 0.75


def _t_quantile(probability: Array | float, dof: Array) -> Array:
    """Returns the value that Student's t with `dof` degrees of freedom does not exceed with a probability."""
    import scipy.special  # not at the top: it is slow to import

    return np.asarray(scipy.special.stdtrit(dof, probability))


def _t_tail(value: Array, dof: Array) -> Array:
    """Returns the probability that Student's t with `dof` degrees of freedom exceeds a value."""
    import scipy.special  # not at the top: it is slow to import

    return np.asarray(scipy.special.stdtr(dof, -value))


@dataclass(frozen=True)
class Side:
    """The efficiencies of one run, one entry per problem: log_ratio and sigma of the margins, degrees of
    freedom, and the efficiencies (fractions; 0 for a pick that is not ok)."""

    efficiency: Array
    log_ratio: Array
    sigma: Array
    dof: Array

    def bound(self, confidence: Array | float, side: int) -> Array:
        """Returns the one-sided confidence limit of each efficiency; side: -1 lower, 1 upper."""
        if not self.sigma.any():
            return self.efficiency
        quantile = _t_quantile(confidence, self.dof)
        moved = np.exp(np.minimum(0.0, self.log_ratio + side * quantile * self.sigma))
        return np.asarray(np.where(self.sigma > 0, moved, self.efficiency))

    def only(self, problems: npt.NDArray[np.bool_]) -> Side:
        """Returns the chosen problems."""
        return Side(
            self.efficiency[problems], self.log_ratio[problems], self.sigma[problems], self.dof[problems]
        )

    def draws(self, rng: np.random.Generator, count: int) -> Array:
        """Simulated efficiencies with the noise of the measurement, (count, problems)."""
        noise = rng.standard_t(np.broadcast_to(self.dof, (count, len(self.dof))))
        drawn = np.minimum(1.0, np.exp(self.log_ratio + self.sigma * noise))
        return np.asarray(np.where(self.sigma > 0, drawn, self.efficiency))


def paired_sides(
    problems: Sequence[str],
    now: Mapping[str, float | None],
    then: Mapping[str, float | None],
    margins_now: Mapping[str, Margin],
    margins_then: Mapping[str, Margin],
) -> tuple[Side, Side]:
    """Returns both runs, paired by problem. If both come from the same measurements, the difference is exact
    and neither has noise. If the baseline has no information on its noise, this run's is used. Efficiencies
    are corrected for drift where their margins are."""
    sides: tuple[list[tuple[float, float, float, float]], ...] = ([], [])
    for problem in problems:
        fractions = (now[problem] or 0.0, then[problem] or 0.0)
        new, old = margins_now.get(problem), margins_then.get(problem)
        same = abs(fractions[0] - fractions[1]) < 1e-8 if old is None else False
        if new is not None and old is not None:
            same = new.of_the_same_data(old)
        for side, fraction, margin, own in zip(sides, fractions, (new, old or new), (new, old), strict=True):
            if margin is None or same or fraction <= 0:
                side.append((fraction, 0.0, 0.0, 1.0))
                continue
            beyond = max(0.0, margin.log_ratio) if fraction >= 1 else 0.0
            log_ratio = min(0.0, np.log(fraction)) + beyond
            if own is not None and own.drift and fraction < 1:
                log_ratio -= own.drift
                fraction = min(1.0, float(np.exp(log_ratio)))
            side.append((fraction, log_ratio, margin.sigma, margin.dof))
    columns = [np.array(side, dtype=np.float64).reshape(-1, 4).T for side in sides]
    return Side(*columns[0]), Side(*columns[1])


def with_accepted_picks(problems: Sequence[str], then: Side, timed_now: Mapping[str, Margin]) -> Side:
    """Returns the baseline with what this run says on the picks that the baseline accepted.

    timed_now: the margins of the baseline's picks in this run, for problems where this run picks another
    kernel. Where they agree with the baseline's, within the noise of both, the two are averaged by their
    variances. Then the new pick is compared with the old one in the same rounds, not only with an earlier
    session. Where they do not agree (the kernel or the machine has changed), the baseline stands.
    """
    efficiency, log_ratio, sigma, dof = (
        values.copy() for values in (then.efficiency, then.log_ratio, then.sigma, then.dof)
    )
    for place, problem in enumerate(problems):
        new = timed_now.get(problem)
        if new is None or new.sigma <= 0 or sigma[place] <= 0:
            continue
        variances = np.array([sigma[place], new.sigma]) ** 2
        dofs = np.array([dof[place], new.dof])
        allowed = _t_quantile(_AGREED, _joint_dof(variances, dofs)) * np.sqrt(variances.sum())
        if abs(log_ratio[place] - new.log_ratio) > allowed:
            continue
        weights = (1 / variances) / (1 / variances).sum()
        log_ratio[place] = weights @ [log_ratio[place], new.log_ratio]
        sigma[place] = np.sqrt(1 / (1 / variances).sum())
        dof[place] = 1 / (weights**2 / dofs).sum()
        efficiency[place] = min(1.0, float(np.exp(log_ratio[place])))
    return Side(efficiency, log_ratio, sigma, dof)


def same_picks(
    problems: Sequence[str], margins_now: Mapping[str, Margin], margins_then: Mapping[str, Margin]
) -> npt.NDArray[np.bool_]:
    """Which problems have the same pick in both runs, (problems,). Their margins change by noise or because
    the kernel changed, not because of another pick."""
    both = margins_now.keys() & margins_then.keys()
    same = [one in both and margins_now[one].pick == margins_then[one].pick for one in problems]
    return np.array(same, dtype=np.bool_)


def between_sessions(now: Side, then: Side, same_pick: npt.NDArray[np.bool_]) -> float:
    """Returns the standard deviation of the change of a margin (a log ratio) between sessions beyond the
    errors within them; 0 if those errors explain the change, and for fewer than _LEAST_PROBLEMS problems."""
    noisy = (now.sigma > 0) & (then.sigma > 0) & same_pick
    if noisy.sum() < _LEAST_PROBLEMS:
        return 0.0
    moved = (now.log_ratio - then.log_ratio)[noisy]
    away = np.abs(moved - np.median(moved))
    variance = (now.sigma**2 + then.sigma**2)[noisy]
    dof = np.minimum(now.dof, then.dof)[noisy]
    expected = _t_quantile(0.5 + _MOVED_QUANTILE / 2, dof)

    def excess(between: float) -> float:
        return float(np.quantile(away / np.sqrt(variance + between**2) / expected, _MOVED_QUANTILE)) - 1.0

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 2.0 * float(away.max()) + float(np.sqrt(variance.max()))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def with_sessions(side: Side, between: float) -> Side:
    """Adds half of the variance between sessions to one run's errors; exact values stay exact."""
    noisy = side.sigma > 0
    if between <= 0 or not noisy.any():
        return side
    own, added = side.sigma**2, between**2 / 2
    # Welch and Satterthwaite; a quantile is known about half as well as a variance.
    dof = (own + added) ** 2 / (own**2 / side.dof + added**2 / (noisy.sum() / 2))
    return Side(
        side.efficiency,
        side.log_ratio,
        np.where(noisy, np.sqrt(own + added), 0.0),
        np.where(noisy, dof, side.dof),
    )


def loss_bounds(now: Side, then: Side, confidence: Array | float) -> tuple[Array, Array]:
    """Lower and upper one-sided limits of each problem's loss, in points."""
    loss = then.efficiency - now.efficiency
    low = loss - np.hypot(
        then.efficiency - then.bound(confidence, -1), now.bound(confidence, 1) - now.efficiency
    )
    high = loss + np.hypot(
        then.bound(confidence, 1) - then.efficiency, now.efficiency - now.bound(confidence, -1)
    )
    return 100.0 * low, 100.0 * high


def finding_confidences(now: Side, then: Side, points: float, confidence: float) -> Array:
    """Returns the confidence at which each problem's loss counts as found, (problems,): `confidence`, or as
    much more as keeps the probability that an unchanged run fails, over all problems, at _FALSE_ALARMS or
    below.

    An unchanged run repeats the baseline's margin with the noise of both. A problem is a false alarm if the
    lower limit of the loss of such a repetition is above `points`. All problems get the same share of the
    probability: noisy ones need more confidence for it, and quiet ones, whose noise hardly ever exceeds
    `points`, need no more than `confidence`. So do problems whose pick was far ahead of all other kernels in
    the baseline: noise does not make it slower than them by `points`.
    """
    confidences = np.full(len(now.efficiency), confidence)
    noisy = (now.sigma > 0) | (then.sigma > 0)
    if not noisy.any():
        return confidences
    new, old = now.only(noisy), then.only(noisy)
    variances = np.stack([new.sigma, old.sigma]) ** 2
    dof = _joint_dof(variances, np.stack([new.dof, old.dof]))
    levels = np.array([confidence, *(one for one in _STRICTER if one > confidence)])
    alarms = []
    for level in levels:
        below = old.efficiency - old.bound(level, -1)
        above = new.efficiency * np.expm1(np.minimum(_t_quantile(level, new.dof) * new.sigma, _MOST_LOG))
        least = points / 100.0 + np.hypot(below, above)  # the loss whose lower limit is `points`
        slowed = old.log_ratio - np.log(np.maximum(old.efficiency - least, np.exp(-_MOST_LOG)))
        alarms.append(_t_tail(slowed / np.sqrt(variances.sum(axis=0)), dof))
    of_level = np.stack(alarms)
    share, chosen = _FALSE_ALARMS, np.zeros(len(dof), dtype=np.int64)
    while share > _FALSE_ALARMS / (2 * len(dof)):
        # The first level at which a problem is within its share; the strictest if none is.
        within = of_level <= share
        chosen = np.where(within.any(axis=0), within.argmax(axis=0), len(levels) - 1)
        if of_level[chosen, np.arange(len(dof))].sum() <= _FALSE_ALARMS:
            break
        share /= 2.0
    confidences[noisy] = levels[chosen]
    return confidences


def _joint_dof(variances: Array, dof: Array) -> Array:
    """Degrees of freedom of a sum of independent estimates, first axis (Welch and Satterthwaite)."""
    return np.asarray(variances.sum(axis=0) ** 2 / (variances**2 / dof).sum(axis=0))


class Changes:
    """The effect of noise on statistics over the problems. Both runs are redrawn once for all statistics."""

    def __init__(self, now: Side, then: Side) -> None:
        self._sides = (100.0 * now.efficiency, 100.0 * then.efficiency)
        self._drawn: tuple[Array, Array] | None = None
        self._noise: dict[Statistic, Array] = {}
        if now.sigma.any() or then.sigma.any():
            rng = np.random.default_rng(_SEED)
            count = max(200, min(_DRAWS, _MOST_DRAWN // len(now.efficiency)))
            self._drawn = (100.0 * now.draws(rng, count), 100.0 * then.draws(rng, count))

    def interval(self, statistic: Statistic, confidence: float) -> tuple[float, float]:
        """Lower and upper one-sided limits of statistic(now) - statistic(then), in points."""
        change = float(statistic(self._sides[0]) - statistic(self._sides[1]))
        if self._drawn is None:
            return change, change
        if statistic not in self._noise:  # a criterion asks for two confidences
            drawn = statistic(self._drawn[0]) - statistic(self._drawn[1])
            # Centred on the measured change: adding noise to noisy values shifts the statistics of both runs
            # alike.
            self._noise[statistic] = drawn - np.median(drawn)
        low, high = np.quantile(self._noise[statistic], [1.0 - confidence, confidence])
        return change + float(low), change + float(high)
