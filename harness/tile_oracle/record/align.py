"""Brings the times of several runs of a problem to one scale, by the kernels that the runs have in common.

A pool grows: new kernels are measured on problems whose other kernels were measured on another day, perhaps
on another device of the same model. Times of two such runs differ by a few percent for all kernels of a
problem, which is more than the distance between its best kernels.

Of each problem, the run with most ok kernels stays as it is. The times of every other run of the same
architecture are multiplied by the median ratio of the ok kernels that both measured. If these are fewer than
LEAST_SHARED, the factor is the median over all pairs that the two runs share, of at least LEAST_PAIRS; else
the run stays as it is. The column `aligned` has the factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tile_oracle.problem import problem_from_id

LEAST_SHARED = 3
"""With fewer kernels one disturbed time could decide the factor."""

LEAST_PAIRS = 20
"""Of two runs, for a factor of theirs where a problem has too few."""

FACTOR = "aligned"
_TIMES = ("latency_ms", "latency_min_ms")


@dataclass(frozen=True)
class Alignment:
    """problems: those that several runs measured. aligned: pairs of problem and run that were scaled by
    kernels of the problem; by_run: by all that the two runs share; apart: not scaled. factors: the 5th, 50th
    and 95th percentile of the factors."""

    problems: int
    aligned: int
    by_run: int
    apart: int
    factors: tuple[float, float, float] | None

    def lines(self) -> list[str]:
        """Returns the summary, as text for the user."""
        if not self.problems:
            return ["  no problem was measured in several runs: no times to align"]
        found = [f"  {self.problems:,} problems were measured in several runs"]
        if self.factors is not None:
            low, middle, high = self.factors
            found.append(
                f"  {self.aligned + self.by_run:,} times of a run and problem aligned: multiplied by "
                f"{middle:.3f} (median; 5 to 95 %: {low:.3f} to {high:.3f})"
            )
        if self.by_run:
            found.append(
                f"    {self.by_run:,} of them by all pairs that the two runs share: the problem has fewer "
                f"than {LEAST_SHARED}"
            )
        if self.apart:
            found.append(
                f"  {self.apart:,} left as they are: the runs share fewer than {LEAST_PAIRS} ok pairs, or "
                "are of different architectures"
            )
        return found


def align_runs(records: pd.DataFrame) -> tuple[pd.DataFrame, Alignment]:
    """Returns the records with aligned times, and what was done. records: columns of
    tile_oracle.record.schema.

    Aligning aligned records again changes nothing but rounding.
    """
    records = records.reset_index(drop=True)
    runs = records.groupby("problem", observed=True)["run"].nunique()
    several = runs.index[runs > 1]
    rows = records[records["problem"].isin(several) & (records["status"] == "ok")]
    latest = rows.sort_values(["round", "time"], kind="stable").drop_duplicates(
        ["problem", "run", "kernel"], keep="last"
    )
    comparisons = list(_comparisons(latest))
    of_runs: dict[tuple[str, str], list[float]] = {}
    for one in comparisons:
        of_runs.setdefault((one.fixed, one.run), []).extend(one.ratios)
    factor = pd.Series(1.0, index=records.index)
    places = records.groupby(["problem", "run"], observed=True).indices
    found: list[float] = []
    by_run = 0
    for one in comparisons:
        shared = of_runs[one.fixed, one.run]
        own = len(one.ratios) >= LEAST_SHARED
        if own or len(shared) >= LEAST_PAIRS:
            by_run += not own
            found.append(float(np.exp(np.median(one.ratios if own else shared))))
            factor.iloc[places[one.problem, one.run]] = found[-1]
    aligned = _scaled(records, factor)
    percentiles = tuple(map(float, np.percentile(found, (5, 50, 95)))) if found else None
    done = Alignment(len(several), len(found) - by_run, by_run, len(comparisons) - len(found), percentiles)  # type: ignore[arg-type]
    return aligned, done


@dataclass(frozen=True)
class _Comparison:
    """ratios: ln(time in the fixed run / time in the run) of the kernels that are ok in both."""

    problem: str
    fixed: str
    run: str
    ratios: tuple[float, ...]


def _comparisons(latest: pd.DataFrame) -> Iterator[_Comparison]:
    """Yields every run of a problem with the problem's largest one. latest: one ok row of a problem, run,
    kernel."""
    for problem, table in latest.groupby("problem", observed=True):
        by_run = table.pivot(index="kernel", columns="run", values="latency_ms")
        archs = table.groupby("run", observed=True)["arch"].first()
        # Of several runs with as many kernels the one whose name sorts first.
        fixed = by_run.count().sort_index().idxmax()
        for run in by_run.columns.drop(fixed):
            alike = archs[run] == archs[fixed]
            ratios = np.log(by_run[fixed] / by_run[run]).dropna() if alike else ()
            yield _Comparison(str(problem), str(fixed), str(run), tuple(map(float, ratios)))


def _scaled(records: pd.DataFrame, factor: pd.Series) -> pd.DataFrame:
    timed = (factor != 1.0) & records["latency_ms"].notna()
    scaled = records.copy()
    for name in _TIMES:
        scaled.loc[timed, name] = records.loc[timed, name] * factor[timed]
    flops_of = {one: float(problem_from_id(one).flops) for one in records.loc[timed, "problem"].unique()}
    # As `Problem.tflops` computes it, to the last bit: oracle files leave the column out where it follows.
    scaled.loc[timed, "tflops"] = records.loc[timed, "problem"].map(flops_of).astype(float) / (
        scaled.loc[timed, "latency_ms"] * 1e9
    )
    scaled.loc[timed, FACTOR] = records.loc[timed, FACTOR].fillna(1.0) * factor[timed]
    return scaled
