"""Suggests the most informative pairs to measure next within a budget.

Without a model, a cold start goes on from the records (exploration.cold_start). If a model exists,
`suggest_picks` uses it: its mistakes are among the unmeasured pairs that it would pick.
`suggest_adapting` is for a model elsewhere (`tile-oracle model train --adapt`).
The model's first picks of some problems are measured: kernels that it never ranks high need no correction.
Each measurement makes the shift of its kernel more certain, the first ones most. So the problems are chosen
whose picks are kernels that the model ranks high for many problems and that were chosen for few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.exploration.cold_start import NO_PAIR, ColdStart
from tile_oracle.judge.ranking import Ranking
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.record.final import final_measurements, problems_of, records_op

PICKS = 10
"""Measured kernels of a problem. Fewer leave out kernels that may be the best elsewhere."""

_ALL_MEASURED = "every pair of these problems and kernels is measured: there is nothing to suggest"


def suggest(
    records: pd.DataFrame,
    arch: str,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    budget: int,
    seed: int = 0,
) -> pd.DataFrame:
    """Returns the `budget` pairs to measure next, most useful first, as a cold start goes on from the records
    (exploration.cold_start), with at most four pairs of a problem.

    Candidates are all pairs that the architecture supports and that are not in the records. Columns: problem,
    kernel, `rank` from 1. Raises ModelError for a budget below 1, or without a candidate.
    """
    _check_budget(budget)
    op = records_op(records)
    if any(problem.op != op for problem in problems):
        raise ModelError(f"the records are of {op}: suggestions are for problems of the same operation")
    everything = {problem.id: problem for problem in (*problems_of(records), *problems)}
    start = ColdStart.of(tuple(everything.values()), kernels, arch, seed=seed)
    asked = start.table["problem"].isin([problem.id for problem in problems]).to_numpy()
    if not asked.any():
        raise ModelError(NO_PAIR)
    latency_ms = start.latency_ms(final_measurements(records))  # those of other problems teach, too
    chosen, _ = start.choose(latency_ms, budget, asked)
    if not len(chosen):
        raise ModelError(_ALL_MEASURED)
    table = start.table.loc[chosen, ["problem", "kernel"]].reset_index(drop=True)
    return table.assign(rank=range(1, len(table) + 1))


def suggest_picks(records: pd.DataFrame, rankings: pd.DataFrame, budget: int) -> pd.DataFrame:
    """Returns the first `budget` unmeasured pairs in a model's order.

    The first unmeasured pair of every problem, then the second of every problem, and so on. rankings:
    problem, kernel, predicted_tflops. Columns: problem, kernel, and `rank`, from 1, among all of the
    problem's kernels, measured or not. Raises ModelError for a budget below 1, and if every pair is measured.
    """
    _check_budget(budget)
    return _first(_unmeasured_picks(records, rankings, budget).sort_values(["place", "number"]), budget)


def suggest_adapting(records: pd.DataFrame, rankings: pd.DataFrame, budget: int) -> pd.DataFrame:
    """Returns the `budget` pairs that teach most about a model's kernels elsewhere (`covering_problems`).

    The first unmeasured pairs of some problems in the model's order. Columns and errors: as of
    `suggest_picks`.
    """
    _check_budget(budget)
    table = _unmeasured_picks(records, rankings, PICKS)
    picks = [group["kernel"].tolist() for _, group in table.groupby("number")]
    numbers = table["number"].unique()
    chosen = [numbers[one] for one in covering_problems(picks, budget)]
    return _first(table.set_index("number").loc[chosen], budget)


def _first(ordered: pd.DataFrame, budget: int) -> pd.DataFrame:
    """Returns the first pairs of a table that is in order."""
    return ordered[["problem", "kernel", "rank"]].head(budget).reset_index(drop=True)


def _unmeasured_picks(records: pd.DataFrame, rankings: pd.DataFrame, most: int) -> pd.DataFrame:
    """Returns the first `most` unmeasured pairs of each problem in a model's order. Columns: problem, kernel,
    `rank` among all of the problem's kernels, `place` among the unmeasured ones, `number` of the problem.
    Raises ModelError if there is none."""
    measured = records.groupby(records["problem"].astype(str))["kernel"].agg(set)
    number = {str(problem): place for place, problem in enumerate(rankings["problem"].unique())}
    frames = []
    for problem, names, _ in Ranking.of(rankings).of_problems():
        found = pd.DataFrame({"kernel": names, "rank": range(1, len(names) + 1)})
        found = found[~found["kernel"].isin(measured.get(problem, set()))].head(most)
        frames.append(found.assign(problem=problem, place=range(len(found)), number=number[problem]))
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if table.empty:
        raise ModelError(_ALL_MEASURED)
    return table.sort_values(["number", "place"], ignore_index=True)


def covering_problems(picks: Sequence[Sequence[str]], pairs: int) -> list[int]:
    """Choose the problems to measure, until their picks are at least `pairs`; return their numbers in order.

    picks: the kernels to measure for each problem. A kernel that n chosen problems measure counts
    w / ((1 + n) (2 + n)) for the next one: by so much does w / (1 + n), its share of the uncertainty, fall.
    w: the number of problems that have the kernel among their picks.
    """
    names = sorted({name for one in picks for name in one})
    place = {name: number for number, name in enumerate(names)}
    rows = [np.array([place[name] for name in one], dtype=np.int64) for one in picks]
    often = np.bincount(np.concatenate([*rows, np.zeros(0, dtype=np.int64)]), minlength=len(names))
    measured = np.zeros(len(names))
    left = list(range(len(rows)))
    chosen: list[int] = []
    while left and sum(len(rows[number]) for number in chosen) < pairs:
        gain = often / ((1 + measured) * (2 + measured))
        best = max(left, key=lambda number: (float(gain[rows[number]].sum()), -number))
        left.remove(best)
        chosen.append(best)
        measured[rows[best]] += 1
    return chosen


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise ModelError(f"a budget of {budget} pairs leaves nothing to suggest: it must be at least 1")
