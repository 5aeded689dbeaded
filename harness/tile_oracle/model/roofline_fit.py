"""Fits the constants of the roofline to measured times.

First the constants that explain the times best, most of all those of fast kernels (Gauss-Newton steps on
logarithms, softened against outliers); then, from there, those whose first choice loses least: the mean of
the regret of kernels that are drawn by exp(-ln(time) / width), as a softened first choice. The constants that
all engines share are held near their defaults, since they have a physical meaning that other engines need.

A row depends on the shared constants and on those of its own engine, so that a derivative by one constant of
every engine takes one evaluation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_codes
from tile_oracle.features.schemas.roofline_time import Constants, Engine, Roofline
from tile_oracle.features.schemas.roofline_work import Work
from tile_oracle.features.schemas.tile_work import ENGINES
from tile_oracle.model.physics import nearness
from tile_oracle.model.roofline import RooflineModel

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_SLOWEST = 15.0
"""Slower kernels than that, relative to a problem's fastest, are not fitted to."""
_SHARES = ("efficiency", "clock_share", "memory_share")
"""Constants that are at most 1."""
_RANGE = 60.0
"""A constant stays within this factor of its default."""
_PRIOR = 0.03**2
"""Weight of the squared distance of an engine's constant from its default, so that one that no time depends
on stays."""
_SHARED_PRIOR = 8.6e-4
"""The same of a shared constant, for each row that counts in full."""
_OF_PROBLEM = 0.9
"""Share of a problem's mean error that does not count: it does not change the order of its kernels."""
_OUTLIER = 0.1
"""Errors of ln(time) beyond that count linearly."""
_STEPS = 60
_WIDTH = 0.05
"""Width in ln(time) within which kernels share the first choice."""
_ERROR_WEIGHT = 2.5
"""Weight of the mean squared error of ln(time); that of the mean regret is 1."""
_STAY = 0.003
"""Weight of the squared distance from the constants that explain the times best."""
_NEAR = 2.0
"""Largest distance from the constants that explain the times best."""
_CHOICES = 60
_SMALL = 1e-4

_Group = TypeVar("_Group", Constants, Engine)
_SHARED = tuple(one.name for one in fields(Constants))
_OWN = tuple(one.name for one in fields(Engine))


def fit_roofline(rows: pd.DataFrame, arch: str, start: RooflineModel | None = None) -> RooflineModel:
    """The constants that explain the times of a training table best and choose best.

    rows: one row a pair, with the fields of the problem, `kernel` and `latency_ms`. The constants of engines
    without rows stay those of `start` (by default the shipped ones). Raises ModelError.
    """
    model = start or RooflineModel(arch)
    best_ms = rows.groupby("problem")["latency_ms"].transform("min")
    rows = rows[rows["latency_ms"] < _SLOWEST * best_ms]
    fit = _Fit.of(rows, model)
    shared, engines = _constants(fit.choosing(fit.explaining()))
    there = {ENGINES[place] for place in np.unique(fit.work.engine)}
    kept = {name: _rounded(engines[name]) if name in there else model.engines[name] for name in ENGINES}
    return replace(model, shared=_rounded(shared), engines=kept)


def _rounded(constants: _Group) -> _Group:
    """The constants with six digits."""
    return replace(constants, **{name: float(f"{value:.6g}") for name, value in asdict(constants).items()})


def _numbers(model: RooflineModel) -> Array:
    """The logarithms of all constants: the shared ones, then each constant of all engines."""
    shared = [getattr(model.shared, name) for name in _SHARED]
    own = [getattr(model.engines[engine], name) for name in _OWN for engine in ENGINES]
    return np.asarray(np.log(np.array([*shared, *own])))


def _constants(numbers: Array) -> tuple[Constants, dict[str, Engine]]:
    """The inverse of `_numbers`."""
    values = np.exp(numbers)
    shared = dict(zip(_SHARED, values[: len(_SHARED)].tolist(), strict=True))
    own = values[len(_SHARED) :].reshape(len(_OWN), len(ENGINES)).T.tolist()
    engines = {
        name: Engine(**dict(zip(_OWN, row, strict=True))) for name, row in zip(ENGINES, own, strict=True)
    }
    return Constants(**shared), engines


@dataclass(frozen=True)
class _Fit:
    """The rows that are fitted to. goal: ln(time in us). regret: 1 - the best time of the problem / time."""

    work: Work
    goal: Array
    weight: Array
    regret: Array
    problem: npt.NDArray[np.int64]
    before: Array

    @classmethod
    def of(cls, rows: pd.DataFrame, model: RooflineModel) -> _Fit:
        """Raises ModelError for an architecture or a data type whose peak rates are not known."""
        work = model.work({name: rows[name].to_numpy() for name in rows})
        goal = np.log(1000.0 * rows["latency_ms"].to_numpy(dtype=np.float64))
        problem = group_codes(rows)
        best = np.full(int(problem.max()) + 1, np.inf)
        np.minimum.at(best, problem, goal)
        regret = 1.0 - np.exp(best[problem] - goal)
        return cls(work, goal, nearness(goal, problem), regret, problem, _numbers(model))

    # ---- errors ------------------------------------------------------------------------------------

    @cached_property
    def _count(self) -> int:
        return int(self.problem.max()) + 1

    @cached_property
    def _of_problem(self) -> csr_matrix:
        """(problems, rows): 1 where a row is of a problem."""
        from scipy.sparse import csr_matrix  # not at the top: it is slow to import

        rows = np.arange(len(self.problem))
        return csr_matrix((np.ones(len(rows)), (self.problem, rows)), shape=(self._count, len(rows)))

    @cached_property
    def _weight_of_problem(self) -> Array:
        return np.asarray(self._of_problem @ self.weight)

    def _means(self, values: Any) -> Any:
        """Weighted means over each problem's rows, times the share that does not count. values: (rows,) or a
        sparse matrix of as many rows."""
        from scipy.sparse import diags

        scale = _OF_PROBLEM / self._weight_of_problem
        if isinstance(values, np.ndarray):
            return scale * (self._of_problem @ (self.weight * values))
        return (diags(scale) @ (self._of_problem @ (diags(self.weight) @ values))).toarray()

    def _errors(self, log_time: Array) -> Array:
        error = log_time - self.goal
        return np.asarray(error - self._means(error)[self.problem])

    def _log_time(self, numbers: Array) -> Array:
        return np.asarray(np.log(Roofline(*_constants(numbers)).time(self.work).total_us))

    def _slopes(self, numbers: Array, log_time: Array) -> csr_matrix:
        """(rows, constants): derivatives of ln(time)."""
        from scipy.sparse import csr_matrix

        count, engines, first = len(self.goal), len(ENGINES), len(_SHARED)
        places, slopes = [], []
        for place in range(first + len(_OWN)):
            changed = numbers.copy()
            begin = place if place < first else first + (place - first) * engines
            changed[begin : begin + (1 if place < first else engines)] += _SMALL
            slopes.append((self._log_time(changed) - log_time) / _SMALL)
            places.append(np.full(count, begin) if place < first else begin + self.work.engine)
        ends = np.arange(count + 1) * len(slopes)
        values, columns = np.stack(slopes, axis=1).ravel(), np.stack(places, axis=1).ravel()
        return csr_matrix((values, columns, ends), shape=(count, len(numbers)))

    @cached_property
    def _prior(self) -> Array:
        prior = np.full(len(self.before), _PRIOR)
        prior[: len(_SHARED)] = _SHARED_PRIOR * self.weight.sum()
        return prior

    @cached_property
    def _limits(self) -> tuple[Array, Array]:
        names = [*_SHARED, *(name for name in _OWN for _ in ENGINES)]
        shares = np.array([name in _SHARES for name in names])
        spread = np.log(_RANGE)
        return self.before - spread, np.where(shares, 0.0, self.before + spread)

    # ---- explaining the times ----------------------------------------------------------------------

    def _unexplained(self, numbers: Array) -> tuple[float, Array, Array]:
        """(what is minimized, ln(time), errors)."""
        log_time = self._log_time(numbers)
        errors = self._errors(log_time)
        stretched = 2.0 * (np.sqrt(1.0 + (errors / _OUTLIER) ** 2) - 1.0) * _OUTLIER**2
        away = numbers - self.before
        total = (self.weight * stretched).sum() + (self._prior * away * away).sum()
        return float(total), log_time, errors

    def explaining(self) -> Array:
        """The logarithms of the constants that explain the times best."""
        numbers, damping = self.before, 1e-2
        total, log_time, errors = self._unexplained(numbers)
        for _ in range(_STEPS):
            square, slope = self._normal(numbers, log_time, errors)
            better = None
            while better is None and damping < 1e3:
                damped = square + damping * np.diag(np.diag(square) + 1e-6)
                step = np.clip(-np.linalg.solve(damped, slope), -1.0, 1.0)
                tried = np.clip(numbers + step, *self._limits)
                found = self._unexplained(tried)
                if found[0] < total:
                    better = tried, *found
                else:
                    damping *= 4.0
            if better is None:
                break
            gained = total - better[1]
            numbers, total, log_time, errors = better
            damping = max(damping / 5.0, 1e-5)
            if gained < 1e-4 * total:
                break
        return numbers

    def _normal(self, numbers: Array, log_time: Array, errors: Array) -> tuple[Array, Array]:
        """The matrix and the right side of a Gauss-Newton step."""
        from scipy.sparse import diags

        slopes = self._slopes(numbers, log_time)
        means = self._means(slopes)
        weight = self.weight / np.sqrt(1.0 + (errors / _OUTLIER) ** 2)
        of_problem, weighted = self._of_problem, diags(weight) @ slopes
        crossed = means.T @ (of_problem @ weighted).toarray()
        square = (slopes.T @ weighted).toarray() - crossed - crossed.T
        square = square + means.T @ ((of_problem @ weight)[:, None] * means) + np.diag(self._prior)
        slope = slopes.T @ (weight * errors) - means.T @ (of_problem @ (weight * errors))
        return square, slope + self._prior * (numbers - self.before)

    # ---- choosing well -----------------------------------------------------------------------------

    def choosing(self, start: Array) -> Array:
        """The logarithms of the constants near `start` whose first choice loses least."""
        from scipy.optimize import minimize

        lowest, highest = self._limits
        limits = list(zip(np.maximum(start - _NEAR, lowest), np.minimum(start + _NEAR, highest), strict=True))
        options = {"maxiter": _CHOICES, "maxfun": _CHOICES}
        found = minimize(
            self._loss, start, args=(start,), jac=True, method="L-BFGS-B", bounds=limits, options=options
        )
        return np.asarray(found.x)

    def _loss(self, numbers: Array, start: Array) -> tuple[float, Array]:
        """The softened mean regret, with the errors of the times, and its derivatives."""
        log_time = self._log_time(numbers)
        of_problem, problem = self._of_problem, self.problem
        best = np.full(self._count, np.inf)
        np.minimum.at(best, problem, log_time)
        drawn = np.exp(-(log_time - best[problem]) / _WIDTH)
        drawn = drawn / (of_problem @ drawn)[problem]
        regret = of_problem @ (drawn * self.regret)
        by_time = -drawn * (self.regret - regret[problem]) / (_WIDTH * self._count)
        errors, scale = self._errors(log_time), _ERROR_WEIGHT / self.weight.sum()
        soft = np.sqrt(1.0 + (errors / _OUTLIER) ** 2)
        by_error = scale * 2.0 * self.weight * errors / soft
        shared = _OF_PROBLEM / self._weight_of_problem * (of_problem @ by_error)
        by_time = by_time + by_error - shared[problem] * self.weight
        away = numbers - start
        total = regret.mean() + scale * (2.0 * self.weight * (soft - 1.0)).sum() * _OUTLIER**2
        slope = self._slopes(numbers, log_time).T @ by_time + 2.0 * _STAY * away
        return float(total + _STAY * (away * away).sum()), np.asarray(slope)
