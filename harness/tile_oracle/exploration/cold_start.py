"""Chooses what to measure first where nothing is known: a new GPU or library, and no model.

The opening measures two kernels of every problem. The first is the best by a prior: the roofline's time (of
pools of GEMM kernels), or the operations and the traffic of a compute unit; and the models of other
architectures, as an average of ranks. The second is drawn from the best third, so that the models see more
than one kind of kernel.

Then every round fits an ensemble of ln(time) trees to all measurements so far, of all problems together;
where there is a roofline, to its errors. Further trees learn what works and what fails. The round takes the
pairs with the highest expected regret: the mean improvement over the best kernel measured for the problem, as
a fraction of its time. Problems whose best kernel is nearly certain get no further measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import ModelError
from tile_oracle.features.columns import Column, pair_columns
from tile_oracle.features.feature_table import Array, FeatureSchema
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import flops_of, schema_named
from tile_oracle.kernel import Kernel, source_of
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import (
    MANY_DEVICES,
    model_folders,
    shipped_models,
)
from tile_oracle.model.trees import TreeData, TreeSettings, grow, mean_predictions, target_named
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.final import records_op
from tile_oracle.training.grow_network import PRIOR
from tile_oracle.training.recipe import LAUNCH

NO_PAIR = "none of these kernels can compute any of these problems, by kind or by size"
OPENING = 2
"""Measurements of every problem before the first model."""

_PHYSICAL = ((PRIOR,), ("log2_compute", "log2_cu_traffic"))
"""The physical prior: columns that grow with a kernel's time, the first of these that a schema has."""
_DRAWN_FROM = 3
_ENSEMBLE = 4
_TREES = TreeSettings(
    trees=250,
    learning_rate=0.06,
    num_leaves=31,
    min_child_samples=5,
    subsample=0.7,
    reg_lambda=1.0,
)
_MODEL_ERROR = 0.12
"""Added to the ensemble's standard deviation of ln(time): errors that its members share."""
_CORRECTION_ERROR = 0.08
"""The same where the ensemble corrects the roofline."""
_LEVEL_SHRINK = 1.0
_LEAST_CHANCE = 0.02
"""That a pair works."""
_MOST_AT_ONCE = 4
_NEXT_OF_PROBLEM = 0.7
"""A further pair of one problem in a round counts less, because the first may make it needless."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ColdStart:
    """All pairs that the architecture's rules allow, and the choice among them.

    `table`: one row per pair: the fields of problem and kernel, `problem` (id) and `kernel` (name).
    `transferred`: models of other architectures, for the prior.
    """

    table: pd.DataFrame
    arch: str
    transferred: tuple[Predictor, ...] = ()
    seed: int = 0
    threads: int = 1
    problem_of: Rows = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem_of", np.asarray(pd.factorize(self.table["problem"])[0]))

    @classmethod
    def of(
        cls,
        problems: Sequence[Problem],
        kernels: Sequence[Kernel],
        arch: str,
        transferred: Sequence[Predictor] = (),
        seed: int = 0,
        threads: int = 1,
    ) -> ColdStart:
        """Returns the pairs of problems of one operation with the kernels of a pool. Raises ModelError if
        there is none."""
        table = candidate_pairs(problems, kernels, load_arch(arch)).reset_index(drop=True)
        return cls(table, arch, tuple(transferred), seed, threads)

    @property
    def problems(self) -> int:
        """The number of problems with a candidate."""
        return int(self.problem_of.max(initial=-1)) + 1

    def latency_ms(self, final: pd.DataFrame) -> Array:
        """(pairs,): the latency of every measured pair, infinite for one that failed, NaN for an unmeasured
        one."""
        time_ms = np.where(final["status"] == "ok", final["latency_ms"], np.inf)
        index = pd.MultiIndex.from_frame(final[["problem", "kernel"]].astype(str))
        pairs = pd.MultiIndex.from_frame(self.table[["problem", "kernel"]].astype(str))
        return np.asarray(pd.Series(time_ms, index=index).reindex(pairs), dtype=np.float64)

    def choose(
        self, latency_ms: Array, count: int, among: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Rows, float]:
        """Returns the numbers of the `count` pairs to measure next, most useful first, and the expected
        regret: the mean over the problems of what the best unmeasured pair is expected to improve, as a
        fraction (NaN before the first model).

        latency_ms: (pairs,): NaN for an unmeasured pair, infinite for one that failed. among: the pairs that
        may be chosen, (pairs,); None: all. What
        problems lack of the opening comes first. Fewer pairs come back if fewer are unmeasured, before
        as many are measured as there are problems, and above four of a problem.
        """
        done = np.bincount(self.problem_of[~np.isnan(latency_ms)], minlength=self.problems)
        opening = self._opening(latency_ms, done)
        opening = opening if among is None else opening[among[opening]]
        if len(opening) >= count or np.isfinite(latency_ms).sum() < self.problems:
            return opening[:count], float("nan")
        value = self._expected_regret(latency_ms)
        value[opening] = -1.0
        value = value if among is None else np.where(among, value, -1.0)
        best = np.zeros(self.problems)
        np.maximum.at(best, self.problem_of, np.maximum(value, 0.0))
        order = np.lexsort((-value, self.problem_of))
        place = pd.Series(order).groupby(self.problem_of[order]).cumcount().to_numpy()
        keep = (place < _MOST_AT_ONCE) & (value[order] >= 0)
        order, place = order[keep], place[keep]
        ranked = order[np.argsort(-value[order] * _NEXT_OF_PROBLEM**place, kind="stable")]
        return np.concatenate([opening, ranked])[:count], float(best.mean())

    # ---- the opening -------------------------------------------------------------------------

    def _opening(self, latency_ms: Array, done: Rows) -> Rows:
        """Returns the first measurements that problems lack: all first ones, then all second ones."""
        random = np.random.default_rng(self.seed)
        firsts, seconds = [], []
        order = np.lexsort((self._prior, self.problem_of))
        for rows in np.split(order, np.cumsum(np.bincount(self.problem_of))[:-1]):
            lacking = OPENING - int(done[self.problem_of[rows[0]]])
            drawn = random.random(len(rows))  # drawn in any case: a resumed session draws alike
            free = np.flatnonzero(np.isnan(latency_ms[rows]))
            if lacking >= OPENING and len(free):
                firsts.append(rows[free[0]])
                free = free[1:]
            if lacking >= 1 and len(free):
                third = free[: max(1, -(-len(rows) // _DRAWN_FROM))]
                seconds.append(rows[third[np.argmin(drawn[third])]])
        return np.array([*firsts, *seconds], dtype=np.int64)

    @cached_property
    def _prior(self) -> Array:
        """A score per pair; the lowest of a problem is expected to be the fastest."""
        features = operation_named(self._op).for_models
        schema = features.own if self._pool is None else self._pool
        names = next((some for some in _PHYSICAL if set(some) <= set(schema.names)), ())
        scores = [schema.compute(self._columns, hardware_features(self.arch), names).sum(axis=1)]
        scores += [score for one in self.transferred if (score := self._transferred(one)) is not None]
        ranks = [pd.Series(score).groupby(self.problem_of).rank(pct=True).to_numpy() for score in scores]
        return np.asarray(np.nan_to_num(np.nanmean(ranks, axis=0), nan=1.0))

    def _transferred(self, predictor: Predictor) -> Array | None:
        """Returns another architecture's prediction, NaN for problems of other ranks than the model's; its
        physical model alone if it has one, which extrapolates better."""
        ndims = predictor.spec.ndims
        known = self.table["ndim"].isin(ndims).to_numpy() if ndims and "ndim" in self.table else None
        rows = self.table if known is None else self.table[known]
        if rows.empty:
            return None
        physical = predictor.ranker.physical
        if physical is not None:
            found = physical.log_time(rows, hardware_features(predictor.spec.arch))
        else:
            found = predictor.ranker.log_time(rows, pd.factorize(rows["problem"])[0], self.threads)
        score = np.full(len(self.table), np.nan)
        score[slice(None) if known is None else known] = found
        return score

    # ---- the models --------------------------------------------------------------------------

    def _expected_regret(self, latency_ms: Array) -> Array:
        """Expected improvement of every unmeasured pair over the best of its problem, as a fraction of its
        time; -1 for measured ones."""
        measured, ok = ~np.isnan(latency_ms), np.isfinite(latency_ms)
        log_time = np.log(latency_ms[ok])
        data = TreeData(self._features[ok], log_time - self._level[ok], None, self.problem_of[ok])
        target, names = target_named("log_time"), self._schema.names
        members = []
        for number in range(_ENSEMBLE):
            seed = self.seed * _ENSEMBLE + number
            booster = grow(target, data, _TREES, seed, self.threads, names)
            members.append(mean_predictions([booster], self._features, self.threads) + self._level)
        mean, spread = np.mean(members, axis=0), np.std(members, axis=0)
        mean += self._level_errors(log_time - mean[ok], ok)
        shared_error = _MODEL_ERROR if self._roofline is None else _CORRECTION_ERROR
        spread = np.sqrt(spread**2 + shared_error**2)
        best = np.full(self.problems, np.inf)
        np.minimum.at(best, self.problem_of[ok], log_time)
        # A problem without a working kernel yet: every kernel is better than none.
        best = np.where(np.isfinite(best), best, np.nanmax(np.where(np.isfinite(best), best, np.nan)) + 1.0)
        gap = (best[self.problem_of] - mean) / spread
        value = spread * (gap * norm.cdf(gap) + norm.pdf(gap)) * self._works(latency_ms)
        return np.asarray(np.where(measured, -1.0, value))

    def _level_errors(self, error: Array, ok: npt.NDArray[np.bool_]) -> Array:
        """Returns the mean error of each problem's measured pairs, shrunk towards 0, at every pair."""
        of = self.problem_of[ok]
        count = np.bincount(of, minlength=self.problems)
        level = np.bincount(of, error, minlength=self.problems) / (count + _LEVEL_SHRINK)
        return np.asarray(level[self.problem_of])

    def _works(self, latency_ms: Array) -> Array:
        """Returns the estimated chance that each pair works: a kernel may fail for a kind of problem only,
        such as rows that are not aligned, so that trees learn it from the features of all failures so far."""
        tried, worked = ~np.isnan(latency_ms), np.isfinite(latency_ms)
        if worked[tried].all():
            return np.ones(len(latency_ms))
        data = TreeData(self._features[tried], worked[tried].astype(float), None, self.problem_of[tried])
        seed = self.seed * _ENSEMBLE
        booster = grow(target_named("log_time"), data, _TREES, seed, self.threads, self._schema.names)
        found = mean_predictions([booster], self._features, self.threads)
        return np.asarray(np.clip(found, _LEAST_CHANCE, 1.0))

    @property
    def _op(self) -> str:
        return records_op(self.table)

    @cached_property
    def _schema(self) -> FeatureSchema:
        """Features of the launch on GPUs, of tiles and problem on a CPU; those that are read from names where
        kernels of Triton files or libraries are among the candidates. Metrics of binaries are not read: the
        kernels need not be built yet."""
        if self._pool is not None:
            return self._pool
        features = operation_named(self._op).for_models
        launch = None if self.arch == MANY_DEVICES else features.in_recipes.get(LAUNCH)
        return features.own if launch is None else schema_named(launch)

    @cached_property
    def _pool(self) -> FeatureSchema | None:
        """The schema of pools, if a kernel has no fields of its own."""
        named = any(map(source_of, self.table["kernel"].unique()))
        return operation_named(self._op).for_models.pool if named else None

    @cached_property
    def _features(self) -> Array:
        return np.asarray(self._schema.compute(self._columns, hardware_features(self.arch)))

    @cached_property
    def _level(self) -> Array:
        """What a pair's ln(time) is measured against: the roofline's, so that trees learn a correction of it,
        or else ln(operations)."""
        if self._roofline is not None:
            return self._roofline
        return np.asarray(np.log(flops_of(self._columns)))

    @cached_property
    def _roofline(self) -> Array | None:
        """ln(time) by the roofline; None where the schema or the architecture has none."""
        if PRIOR not in self._schema.names:
            return None
        found = self._schema.compute(self._columns, hardware_features(self.arch), (PRIOR,))[:, 0]
        return np.asarray(found) if found.any() else None

    @cached_property
    def _columns(self) -> dict[str, Column]:
        return {str(name): self.table[name].to_numpy() for name in self.table}


def transferable(problems: Sequence[Problem], arch: str) -> list[Predictor]:
    """Returns the shipped models of other GPUs for these kinds of problem; none for a CPU, whose kernels
    differ."""
    if arch == MANY_DEVICES:
        return []
    found = []
    for folder in model_folders(shipped_models()):
        spec = read_spec(folder)
        fits = any(
            operation_named(kind.op).model_type == spec.op_type
            and kind.dtype == spec.dtype
            and spec.direction in (None, kind.words.get("direction"))
            for kind in {problem.kind for problem in problems}
        )
        if fits and spec.arch not in (arch, MANY_DEVICES):
            found.append(Predictor.load(folder))
    return found


def one_operation(problems: Sequence[Problem]) -> None:
    """Raises ModelError unless the problems are of one operation, direction and type."""
    kinds = {(problem.op, problem.dtype, problem.kind.words.get("direction")) for problem in problems}
    if len(kinds) != 1:
        raise ModelError(
            f"the problems are of {len(kinds)} kinds, whose kernels have nothing in common: tune one "
            "operation, direction and data type at a time"
        )


def candidate_pairs(problems: Sequence[Problem], kernels: Sequence[Kernel], arch: Arch) -> pd.DataFrame:
    """Returns a row for every pair that the architecture's rules allow: the fields of problem and kernel,
    `problem` (id) and `kernel` (name). Raises ModelError if there is none."""
    frames = []
    for kind in sorted({p.kind for p in problems}):
        of_kind = [p for p in problems if p.kind == kind]
        pool = [kernel for kernel in kernels if kernel.matches(of_kind[0])]
        if pool:
            frame = pd.DataFrame(pair_columns(of_kind, pool))
            frame = frame.assign(problem=np.repeat([p.id for p in of_kind], len(pool)))
            able = [arch.problem_refusal(kernel, problem) is None for problem in of_kind for kernel in pool]
            frames.append(frame[able])
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if table.empty:
        raise ModelError(NO_PAIR)
    return table
