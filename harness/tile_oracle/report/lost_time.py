"""Time that the picks lose against the oracles, by problem and by kind of problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.problem_slices import slice_names, slices_of
from tile_oracle.selection import COVERED


@dataclass(frozen=True)
class SliceLoss:
    """One kind of problem: its covered problems, their mean efficiency, and its share of the lost time, both
    in percent."""

    name: str
    problems: int
    mean_percent: float
    lost_percent: float


def lost_times(selection: pd.DataFrame) -> pd.DataFrame:
    """The covered problems whose pick ran, most lost time first: `problem`, `efficiency`, `oracle_us`,
    `pick_us`, `lost_us`.

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


def losing_slices(lost: pd.DataFrame) -> list[SliceLoss]:
    """The kinds of problem in `lost_times`, largest share of the lost time first. Kinds overlap."""
    total = float(lost["lost_us"].sum())
    problems: list[Problem] = [problem_from_id(str(name)) for name in lost["problem"]]
    found = []
    for name in slice_names(problems):
        inside = np.array([name in slices_of(problem) for problem in problems], dtype=bool)
        part = lost[inside]
        if len(part) and total > 0:
            mean = 100.0 * float(part["efficiency"].mean())
            share = 100.0 * float(part["lost_us"].sum()) / total
            found.append(SliceLoss(name, len(part), mean, share))
    return sorted(found, key=lambda one: (-one.lost_percent, one.name))
