"""Portfolios: small sets of kernels whose best kernel comes close to the oracle of the whole pool.

The value of a set is the mean, over the problems, of the efficiency of its fastest kernel. A pair that was
not measured, or not ok, counts as 0, so where records are incomplete a value is a lower bound. This value is
a monotone submodular function of the set (facility location). For such functions greedy choice reaches at
least 1 - 1/e of the best set of the same size (Nemhauser, Wolsey and Fisher, 1978).

Here each size starts from the set of the size before, adds the kernel that gains most, and then swaps single
kernels while that gains. Swaps only raise the value, so the guarantee holds for every size. The bound that is
reported (`bound_percent`) is mostly far closer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.features.feature_table import Array
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operation import Kind
from tile_oracle.problem import kind_text
from tile_oracle.record.final import final_measurements

_LEAST_GAIN = 1e-9
"""A swap must raise the mean efficiency by more than this, so that rounding cannot swap for ever."""

_RELAXATION_STEPS = 150


@dataclass(frozen=True)
class PoolEfficiencies:
    """Efficiencies of every kernel on every problem of one kind.

    table: (problems, kernels), 0 to 1, 0 where a pair is not ok or was not measured. without_oracle: problems
    without any ok kernel, which are not in the table. measured_share: share of the pairs with any record.
    """

    kind: Kind
    problems: tuple[str, ...]
    kernels: tuple[str, ...]
    table: Array
    without_oracle: tuple[str, ...] = ()
    measured_share: float = 1.0

    def of(self, kernels: Sequence[str]) -> Array:
        """Returns the efficiency of the fastest of these kernels, (problems,). Kernels without a record count
        0."""
        at = {name: number for number, name in enumerate(self.kernels)}
        columns = [at[name] for name in kernels if name in at]
        if not columns:
            return np.zeros(len(self.problems))
        return np.asarray(self.table[:, columns].max(axis=1))


@dataclass(frozen=True)
class Summary:
    """Mean, P10 and worst efficiency over the problems, in percent, and how many problems have a kernel that
    runs."""

    mean_percent: float
    p10_percent: float
    worst_percent: float
    problems: int
    covered: int

    @classmethod
    def of(cls, efficiency: Array) -> Summary:
        """Summarizes efficiencies (0 to 1); a problem without a kernel that runs has 0."""
        percent = 100.0 * efficiency
        return cls(
            float(percent.mean()),
            float(np.quantile(percent, 0.1)),
            float(percent.min()),
            len(percent),
            int((percent > 0).sum()),
        )


@dataclass(frozen=True)
class Portfolio:
    """A set of kernels."""

    kernels: tuple[str, ...]
    summary: Summary


def pool_efficiencies(records: pd.DataFrame) -> tuple[PoolEfficiencies, ...]:
    """Returns one table for each kind of problem in the records (convolution: direction, data type and rank),
    sorted.

    A kernel that was only measured in the sweep, of a problem whose leaders were measured again, is compared
    with the oracle within the sweep if it seems faster. Raises RecordError if no kernel is ok.
    """
    final = final_measurements(records)
    oracles = find_oracles(final).set_index("problem")
    kinds = {name: parse_kernel_name(str(name)).kind for name in final["kernel"].unique()}
    final = final.assign(efficiency=_efficiency(final, oracles), kind=final["kernel"].map(kinds))
    found = []
    for kind in sorted(set(kinds.values()), key=kind_text):
        rows = final[final["kind"] == kind]
        ok = rows[rows["efficiency"] > 0]
        if ok.empty:
            continue
        table = ok.pivot(index="problem", columns="kernel", values="efficiency")
        measured = rows["problem"].nunique() * rows["kernel"].nunique()
        found.append(
            PoolEfficiencies(
                kind,
                tuple(map(str, table.index)),
                tuple(map(str, table.columns)),
                table.fillna(0.0).to_numpy(dtype=np.float64),
                tuple(sorted(set(rows["problem"]) - set(table.index))),
                len(rows) / measured,
            )
        )
    if not found:
        raise RecordError("no kernel of the records is ok on any problem: there is nothing to choose from")
    return tuple(found)


def _efficiency(final: pd.DataFrame, oracles: pd.DataFrame) -> pd.Series:
    """TFLOPS / the oracle's, at most 1, 0 for pairs that are not ok."""
    ok = final["status"] == "ok"
    oracle_tflops = final["problem"].map(oracles["oracle_tflops"]).astype("float64")
    ratio = final["tflops"].where(ok, 0.0).astype("float64") / oracle_tflops
    best = final["problem"].map(oracles["oracle_kernel"])
    swept = final[final["kernel"] == best].set_index("problem")["sweep_tflops"].astype("float64")
    in_sweep = final["sweep_tflops"].astype("float64") / final["problem"].map(swept)
    flattered = ok & (ratio > 1.0) & ~final["remeasured"] & in_sweep.notna()
    return ratio.where(~flattered, in_sweep).clip(upper=1.0).fillna(0.0)


def choose(pool: PoolEfficiencies, most: int) -> tuple[Portfolio, ...]:
    """Returns the portfolios of 1, 2, ... `most` kernels, in this order; fewer where no further kernel
    gains."""
    table = pool.table
    chosen: list[int] = []
    sets: list[tuple[tuple[int, ...], Array]] = []
    while len(chosen) < min(most, table.shape[1]):
        reached = _reached(table, chosen)
        gain = _gains(table, reached)
        best = int(np.argmax(gain))
        if gain[best] <= _LEAST_GAIN:
            break
        chosen = _swapped(table, [*chosen, best])
        sets.append((tuple(chosen), _reached(table, chosen)))
    return tuple(
        Portfolio(tuple(pool.kernels[number] for number in sorted(numbers)), Summary.of(reached))
        for numbers, reached in sets
    )


def bound_percent(pool: PoolEfficiencies, one: Portfolio) -> float:
    """Returns what no set of this size exceeds in its mean on these problems, by the Lagrangian relaxation of
    facility location (Cornuejols, Fisher and Nemhauser, 1977).

    Give each problem a non-negative level. A set's mean is at most the mean level plus, for each of its
    kernels, the kernel's mean excess over the levels. So the mean level plus the largest excesses bounds
    every set. Subgradient steps, from what the set reaches, look for the levels with the lowest bound.
    """
    table, size = pool.table, len(one.kernels)
    level = pool.of(one.kernels)
    value, lowest = float(level.mean()), float(table.max(axis=1).mean())
    for step in range(_RELAXATION_STEPS):
        above = table > level[:, None]
        gain = np.where(above, table - level[:, None], 0.0).mean(axis=0)
        largest = np.argsort(-gain, kind="stable")[:size]
        found = float(level.mean() + gain[largest].sum())
        lowest = min(lowest, found)
        slope = 1.0 - above[:, largest].sum(axis=1)
        length = float((slope**2).sum())
        if length == 0.0 or lowest - value < _LEAST_GAIN:
            break
        stride = (found - value) * len(level) / length / (1.0 + step / 20.0)
        level = np.clip(level - stride * slope, 0.0, None)
    return 100.0 * max(lowest, value)


def _reached(table: Array, chosen: Sequence[int]) -> Array:
    """Returns the efficiency of the fastest chosen kernel, (problems,)."""
    return np.asarray(table[:, list(chosen)].max(axis=1)) if chosen else np.zeros(len(table))


def _gains(table: Array, reached: Array) -> Array:
    """Returns what each kernel adds to the mean of a set that reaches these efficiencies, (kernels,)."""
    return np.asarray(np.maximum(table - reached[:, None], 0.0).mean(axis=0))


def _two_best(table: Array) -> tuple[Array, Array, npt.NDArray[np.int64]]:
    """Returns the best and the second best efficiency of each problem, and the column of the best. The second
    best of a single kernel is 0."""
    winner = table.argmax(axis=1)
    rows = np.arange(len(table))
    first = table[rows, winner]
    others = table.copy()
    others[rows, winner] = 0.0
    return first, others.max(axis=1), winner.astype(np.int64)


def _swapped(table: Array, chosen: list[int]) -> list[int]:
    """Returns the set after the best swap of one kernel, then the best swap of that set, while that gains.

    All swaps of a set are judged at once (as in PAM, Kaufman and Rousseeuw, 1990): without kernel i, only the
    problems on which i is the fastest change, and there the second best takes its place.
    """
    chosen = list(chosen)
    while True:
        first, second, winner = _two_best(table[:, chosen])
        kept = np.maximum(table - first[:, None], 0.0)
        change = np.maximum(table, second[:, None]) - np.maximum(table, first[:, None])
        by_member = np.zeros((len(chosen), table.shape[1]))
        np.add.at(by_member, winner, change)
        gain = (kept.sum(axis=0)[None, :] + by_member) / len(table)
        out, into = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[out, into] <= _LEAST_GAIN:
            return chosen
        chosen[int(out)] = int(into)
