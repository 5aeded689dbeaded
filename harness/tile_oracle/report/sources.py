"""Comparison of kernel sources, for pools with several: which is fastest on which problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tile_oracle.judge.oracle import find_oracles


@dataclass(frozen=True)
class SourceFigures:
    """One source over all problems that have an oracle.

    problems: number of problems on which it has an ok kernel. wins: number of problems whose oracle it has.
    mean_percent: geometric mean of its best kernel's TFLOPS over the oracle's. worst_percent: their minimum.
    """

    source: str
    problems: int
    wins: int
    mean_percent: float
    worst_percent: float


def sources_by_problem(final: pd.DataFrame, selection: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per problem with an oracle; empty for fewer than two sources.

    Columns: `problem`, `winner` (the source of the oracle) and one for each source: its best TFLOPS / the
    oracle's, from 0 to 1, NaN where it has no ok kernel. A source's best kernel is chosen as an oracle is.
    """
    if "implementation" not in final or final["implementation"].nunique() < 2:
        return pd.DataFrame()
    best = {
        str(source): find_oracles(rows).set_index("problem")["oracle_tflops"].astype("float64")
        for source, rows in final.groupby("implementation", observed=True)
    }
    oracles = selection[selection["oracle_kernel"].notna()].set_index("problem")
    shares = pd.DataFrame(best).reindex(oracles.index).div(oracles["oracle_tflops"].astype("float64"), axis=0)
    shares = shares.clip(upper=1.0)
    source_of = final.drop_duplicates("kernel").set_index("kernel")["implementation"]
    winner = oracles["oracle_kernel"].map(source_of).astype(str)
    return shares.assign(winner=winner).reset_index()


def source_figures(by_problem: pd.DataFrame) -> list[SourceFigures]:
    """Returns the metrics of each source in `sources_by_problem`, most wins first."""
    found = []
    for source in by_problem.columns.difference(["problem", "winner"]):
        shares = by_problem[source].dropna().to_numpy(dtype=np.float64)
        if len(shares):
            wins = int((by_problem["winner"] == source).sum())
            mean = 100.0 * float(np.exp(np.log(shares).mean()))
            found.append(SourceFigures(source, len(shares), wins, mean, 100.0 * float(shares.min())))
    return sorted(found, key=lambda one: (-one.wins, -one.mean_percent, one.source))
