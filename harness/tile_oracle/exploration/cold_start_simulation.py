"""Replays a cold start on records that have every pair: the regret after so many measurements.

Three ways of choosing pairs are compared: the cold start, `suggest` (from two random pairs of every problem
on), and random pairs. A way sees the time of a pair only after it chose the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.exploration.cold_start import OPENING, ColdStart, Rows, one_operation, transferable
from tile_oracle.exploration.suggest import suggest
from tile_oracle.features.feature_table import Array
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.record.final import final_measurements, problems_of

COLD_START, _, RANDOM = WAYS = ("cold start", "suggest", "random")

ROUNDS = 8
"""Rounds after the opening."""


@dataclass(frozen=True)
class Point:
    """The best measured kernels after so many measurements a problem: mean and P10 of their efficiency
    (percent of the exhaustive oracle). expected_regret_percent: what the models expect to gain still, None
    where no model says."""

    way: str
    measurements: int
    per_problem: float
    mean_percent: float
    p10_percent: float
    expected_regret_percent: float | None = None

    @property
    def regret_percent(self) -> float:
        return 100.0 - self.mean_percent


class Exhaustive:
    """The pairs of records that have every pair, and the time of each."""

    def __init__(self, records: pd.DataFrame, seed: int = 0, threads: int = 1) -> None:
        """Raises ModelError for records of several kinds of problem or architectures, or without an ok
        pair."""
        final = final_measurements(records)
        archs = sorted(final["arch"].dropna().unique())
        if len(archs) != 1:
            raise ModelError(f"the records are of {len(archs)} architectures: replay those of one")
        self.arch = str(archs[0])
        problems = problems_of(final)
        one_operation(problems)
        kernels = [parse_kernel_name(str(name)) for name in sorted(final["kernel"].unique())]
        start = ColdStart.of(problems, kernels, self.arch, transferable(problems, self.arch), seed, threads)
        pairs = pd.MultiIndex.from_frame(start.table[["problem", "kernel"]].astype(str))
        time = pd.Series(
            np.where(final["status"] == "ok", final["latency_ms"], np.inf),
            index=pd.MultiIndex.from_frame(final[["problem", "kernel"]].astype(str)),
        ).reindex(pairs)
        recorded = time.notna().to_numpy()
        time_ms = time.to_numpy(dtype=np.float64)
        ok = pd.Series(np.isfinite(time_ms)).groupby(start.problem_of).transform("any").to_numpy()
        if not (recorded & ok).any():
            raise ModelError("the records have no ok measurement: there is nothing to replay")
        # A problem without an ok kernel has no oracle.
        self.start = ColdStart(
            start.table[recorded & ok].reset_index(drop=True),
            self.arch,
            start.transferred,
            seed,
            threads,
        )
        self.latency_ms = time_ms[recorded & ok]
        self.records = final
        self.best_ms = _best(self.latency_ms, self.start.problem_of, self.start.problems)

    def point(self, way: str, known: npt.NDArray[np.bool_], expected: float = float("nan")) -> Point:
        """The result of the pairs that a way has measured."""
        seen = np.where(known, self.latency_ms, np.inf)
        efficiency = 100 * self.best_ms / _best(seen, self.start.problem_of, self.start.problems)
        return Point(
            way,
            int(known.sum()),
            float(known.sum() / self.start.problems),
            float(efficiency.mean()),
            float(np.quantile(efficiency, 0.1)),
            None if np.isnan(expected) else 100 * expected,
        )


def simulate_cold_start(
    exhaustive: Exhaustive,
    per_problem: int = 10,
    ways: Sequence[str] = WAYS,
    report: Callable[[Point], None] | None = None,
) -> list[Point]:
    """The curve of each way, up to `per_problem` measurements a problem on average. Raises ModelError for
    fewer than the opening's."""
    if per_problem <= OPENING:
        raise ModelError(
            f"{per_problem} measurements a problem: it takes more than the {OPENING} of the opening"
        )
    found = []
    for way in ways:
        known = np.zeros(len(exhaustive.latency_ms), dtype=bool)
        total = per_problem * exhaustive.start.problems
        for number in range(ROUNDS + 1):
            goal = (
                OPENING * exhaustive.start.problems
                if number == 0
                else round(total * (OPENING + (per_problem - OPENING) * number / ROUNDS) / per_problem)
            )
            expected = _measure_more(exhaustive, way, known, goal - int(known.sum()), number)
            point = exhaustive.point(way, known, expected)
            found.append(point)
            if report is not None:
                report(point)
    return found


def _measure_more(
    exhaustive: Exhaustive, way: str, known: npt.NDArray[np.bool_], count: int, number: int
) -> float:
    """Marks the `count` pairs that a way chooses as known; the expected regret before them."""
    start = exhaustive.start
    if way == COLD_START:
        chosen, expected = start.choose(np.where(known, exhaustive.latency_ms, np.nan), count)
        known[chosen] = True
        return expected
    if way == RANDOM or number == 0:
        _mark_random(known, start.problem_of, -(-count // start.problems), start.seed + number)
        return float("nan")
    columns = ["problem", "kernel"]
    pairs = pd.MultiIndex.from_frame(start.table[columns].astype(str))
    rows = exhaustive.records
    measured = rows[pd.MultiIndex.from_frame(rows[columns].astype(str)).isin(pairs[known])]
    kernels = [parse_kernel_name(name) for name in sorted(start.table["kernel"].unique())]
    asked = suggest(measured, exhaustive.arch, problems_of(rows), kernels, count, start.seed + number)
    known |= pairs.isin(pd.MultiIndex.from_frame(asked[columns].astype(str)))
    return float("nan")


def _mark_random(known: npt.NDArray[np.bool_], groups: Rows, each: int, seed: int) -> None:
    """Marks `each` further pairs of every problem."""
    draw = np.random.default_rng(seed).random(len(known)) + known
    place = pd.Series(draw).groupby(groups).rank(method="first").to_numpy()
    known |= (place <= each) & ~known


def _best(latency_ms: Array, groups: Rows, count: int) -> Array:
    best = np.full(count, np.inf)
    np.minimum.at(best, groups, latency_ms)
    return best
