"""Simulates suggestions on records that have every pair, to test whether suggestions help.

Starting from a few complete problems, rounds of pairs are added: suggested pairs, or as many random pairs. A
model is trained on each set and picks for all problems of the records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.exploration.suggest import suggest
from tile_oracle.features.groups import group_codes
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.record.final import problems_of, records_op
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.training_rows import training_rows

KNOWN_PROBLEMS = 12
ROUNDS = 4
WAYS = ("suggested", "random")


@dataclass(frozen=True)
class Simulated:
    """Mean efficiency (percent) of a model trained on the pairs that one method chose."""

    way: str
    start: int
    mean_percent: float


def simulate(
    records: pd.DataFrame,
    arch: str,
    budget: int = 60,
    starts: int = 3,
    recipe: str | None = None,
    report: Callable[[str], None] | None = None,
) -> list[Simulated]:
    """One result per method and start: four rounds of `budget` pairs each, starting from twelve problems.

    recipe: training recipe of the model; default `physical` for convolutions, `log_time` for GEMM. Raises
    ModelError for records with too few problems or pairs.
    """
    table = records[records["status"] == "ok"]
    table = table.drop_duplicates(["problem", "kernel"]).reset_index(drop=True)
    op = records_op(table)
    name = recipe or ("physical" if recipe_named("default").for_op(op).physical else "log_time")
    names = sorted(table["problem"].unique())
    if len(names) < 2 * KNOWN_PROBLEMS:
        raise ModelError(
            f"a simulation starts from {KNOWN_PROBLEMS} problems and needs at least {2 * KNOWN_PROBLEMS}; "
            f"the records have {len(names)}"
        )
    kernels = [parse_kernel_name(str(kernel)) for kernel in sorted(table["kernel"].unique())]
    problems = problems_of(table)
    pairs = pd.MultiIndex.from_frame(table[["problem", "kernel"]])
    found = []
    for start in range(starts):
        first = np.random.default_rng(start).choice(names, KNOWN_PROBLEMS, replace=False)
        for way in WAYS:
            known = table["problem"].isin(first).to_numpy(copy=True)
            for step in range(ROUNDS):
                if (~known).sum() < budget:
                    raise ModelError(f"the records have too few pairs for {ROUNDS} rounds of {budget}")
                if way == "random":
                    chosen = table[~known].sample(budget, random_state=10 * start + step).index
                    known[chosen] = True
                else:
                    asked = suggest(table[known], arch, problems, kernels, budget, start)
                    known |= pairs.isin(pd.MultiIndex.from_frame(asked[["problem", "kernel"]]))
            found.append(Simulated(way, start, _reached(name, table, known, arch)))
            if report is not None:
                report(f"start {start + 1} of {starts}, {way}: {found[-1].mean_percent:.2f} %")
    return found


def _reached(recipe: str, table: pd.DataFrame, known: npt.NDArray[np.bool_], arch: str) -> float:
    chosen = recipe_named(recipe).for_rows(table)
    rows = training_rows(table).table
    groups = group_codes(rows)
    predicted = fit(chosen, training_rows(table[known]).table, arch, Effort()).tflops(rows, groups)
    pick = pd.Series(predicted).groupby(groups).idxmax().to_numpy()
    best = rows["tflops"].groupby(groups).max().to_numpy()
    return 100.0 * float((rows["tflops"].to_numpy()[pick] / best).mean())
