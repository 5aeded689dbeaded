"""Time that the picks lose against the oracles, by problem and by kind of problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.judge.selection import COVERED
from tile_oracle.judge.slices import classes_of, slices_of
from tile_oracle.problem import Problem, problem_from_id

_LEAST_EXCESS, _PAIR_COST = 0.05, 0.03
"""Shares of the lost time. A kind of problem is named if its share exceeds its share of the problems by the
first; a pair of kinds must explain more than one kind by the second."""


@dataclass(frozen=True)
class SliceLoss:
    """One kind of problem, without the problems of those named before it: its covered problems, their mean
    efficiency, and its share of the lost time, both in percent. kinds: one, or the two that it combines."""

    name: str
    kinds: tuple[str, ...]
    problems: int
    mean_percent: float
    lost_percent: float


def lost_times(selection: pd.DataFrame) -> pd.DataFrame:
    """Returns the covered problems whose pick ran, most lost time first: `problem`, `efficiency`,
    `oracle_us`, `pick_us`, `lost_us`.

    Times follow from TFLOPS and the problem's operations. A pick that is not ok has no time and no row.
    """
    shown = selection[(selection["coverage"] == COVERED) & (selection["efficiency"] > 0)]
    oracle_us = shown["flops"].astype("float64") / shown["oracle_tflops"].astype("float64") / 1e6
    pick_us = oracle_us / shown["efficiency"].astype("float64")
    table = shown[["problem", "efficiency"]].assign(
        oracle_us=oracle_us, pick_us=pick_us, lost_us=pick_us - oracle_us
    )
    return table.sort_values(["lost_us", "problem"], ascending=[False, True], ignore_index=True)


def time_weighted_percent(lost: pd.DataFrame) -> float | None:
    """Total time of the oracles / total time of the picks, in percent: what a program that runs each problem
    once gets. None without a covered problem."""
    total = float(lost["pick_us"].sum())
    return 100.0 * float(lost["oracle_us"].sum()) / total if total > 0 else None


def losing_slices(lost: pd.DataFrame, most: int = 3) -> list[SliceLoss]:
    """Returns the kinds of problem in `lost_times` that lose more than their share, at most `most`.

    Candidates are kinds and pairs of them ("1x1 with odd channels"). The first one's share of the lost time
    exceeds its share of the problems the most; the next ones likewise, over the problems that are in none of
    those before. Of all problems, a kind says nothing about where.
    """
    total = float(lost["lost_us"].sum())
    if not total > 0:
        return []
    share = lost["lost_us"].to_numpy(dtype=np.float64) / total
    efficiency = lost["efficiency"].to_numpy(dtype=np.float64)
    candidates = _kinds([problem_from_id(str(name)) for name in lost["problem"]])
    left = np.ones(len(lost), dtype=bool)
    found: list[SliceLoss] = []
    while len(found) < most:
        excess = {
            name: float((share[inside & left] - 1.0 / len(lost)).sum()) - _PAIR_COST * (len(kinds) - 1)
            for name, (inside, kinds) in candidates.items()
        }
        name = max(excess, key=lambda one: excess[one], default="")
        if not name or excess[name] < _LEAST_EXCESS:
            break
        inside, kinds = candidates.pop(name)
        inside = inside & left
        mean, part = 100.0 * float(efficiency[inside].mean()), 100.0 * float(share[inside].sum())
        found.append(SliceLoss(name, kinds, int(inside.sum()), mean, part))
        left &= ~inside
    return found


def shares_by_kind(lost: pd.DataFrame) -> dict[str, float]:
    """Kind of problem -> its share of the lost time, in percent; empty where no time is lost. Kinds
    overlap."""
    total = math.fsum(lost["lost_us"])
    if not total > 0:
        return {}
    times: dict[str, list[float]] = {}
    for name, lost_us in zip(lost["problem"], lost["lost_us"], strict=True):
        for kind in slices_of(problem_from_id(str(name))):
            times.setdefault(kind, []).append(float(lost_us))
    return {kind: 100.0 * (math.fsum(lost_us) / total) for kind, lost_us in times.items()}


def _kinds(problems: Sequence[Problem]) -> dict[str, tuple[npt.NDArray[np.bool_], tuple[str, ...]]]:
    """Name -> which problems are of it, and its one or two kinds; without those of no problem, of
    all, or, for pairs, of the same problems as one of the two."""
    single = {name: np.array(inside, dtype=bool) for name, inside in classes_of(problems).items()}
    single = {name: inside for name, inside in single.items() if 0 < inside.sum() < len(problems)}
    found: dict[str, tuple[npt.NDArray[np.bool_], tuple[str, ...]]] = {
        name: (inside, (name,)) for name, inside in single.items()
    }
    for first, second in combinations(single, 2):
        both = single[first] & single[second]
        if 0 < both.sum() < min(single[first].sum(), single[second].sum()):
            found[combined_name(first, second)] = (both, (first, second))
    return found


def combined_name(first: str, second: str) -> str:
    """Returns two kinds as one: 1x1 with odd channels; depthwise 3x3; large M, deep."""
    if " " not in first + second:
        return f"{second} {first}"
    return f"{first} with {second}" if second.endswith(("channels", "rows")) else f"{first}, {second}"
