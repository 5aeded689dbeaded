"""Brings the times of several runs of a problem to one scale, by the kernels that the runs have in common.

A pool grows: new kernels are measured on problems whose other kernels were measured on another day, perhaps
on another device of the same model. Times of two such runs differ by a few percent for all kernels of a
problem, which is more than the distance between its best kernels.

Of each problem, the run with most ok kernels stays as it is. Every other run of the same architecture that
shares at least LEAST_SHARED ok kernels with it is scaled: its times are multiplied by the median ratio of the
shared kernels' times. The column `aligned` has the factor. A run that shares fewer kernels stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

LEAST_SHARED = 3
"""With fewer kernels one disturbed time could decide the factor."""

FACTOR = "aligned"
_TIMES = ("latency_ms", "latency_min_ms")


@dataclass(frozen=True)
class Alignment:
    """problems: those that several runs measured. aligned: pairs of problem and run whose times were scaled;
    apart: those that share too few kernels. factors: the 5th, 50th and 95th percentile of the factors."""

    problems: int
    aligned: int
    apart: int
    factors: tuple[float, float, float] | None

    def lines(self) -> list[str]:
        """The summary, as text for the user."""
        if not self.problems:
            return ["  no problem was measured in several runs: no times to align"]
        found = [f"  {self.problems:,} problems were measured in several runs"]
        if self.factors is not None:
            low, middle, high = self.factors
            found.append(
                f"  {self.aligned:,} times of a run and problem aligned: multiplied by {middle:.3f} (median; "
                f"5 to 95 %: {low:.3f} to {high:.3f})"
            )
        if self.apart:
            found.append(
                f"  {self.apart:,} left as they are: the runs share fewer than {LEAST_SHARED} ok kernels"
            )
        return found


def align_runs(records: pd.DataFrame) -> tuple[pd.DataFrame, Alignment]:
    """The records with aligned times, and what was done. records: columns of tile_oracle.record.schema.

    Aligning aligned records again changes nothing but rounding.
    """
    records = records.reset_index(drop=True)
    runs = records.groupby("problem", observed=True)["run"].nunique()
    several = runs.index[runs > 1]
    rows = records[records["problem"].isin(several) & (records["status"] == "ok")]
    latest = rows.sort_values(["round", "time"], kind="stable").drop_duplicates(
        ["problem", "run", "kernel"], keep="last"
    )
    factor = pd.Series(1.0, index=records.index)
    found: list[float] = []
    apart = 0
    places = records.groupby(["problem", "run"], observed=True).indices
    for problem, table in latest.groupby("problem", observed=True):
        by_run = table.pivot(index="kernel", columns="run", values="latency_ms")
        archs = table.groupby("run", observed=True)["arch"].first()
        # The run with most kernels; of several the one whose name sorts first.
        fixed = by_run.count().sort_index().idxmax()
        for run in by_run.columns.drop(fixed):
            ratio = np.log((by_run[fixed] / by_run[run]).dropna())
            if len(ratio) < LEAST_SHARED or archs[run] != archs[fixed]:
                apart += 1
                continue
            found.append(float(np.exp(ratio.median())))
            factor.iloc[places[problem, run]] = found[-1]
    aligned = _scaled(records, factor)
    percentiles = tuple(map(float, np.percentile(found, (5, 50, 95)))) if found else None
    return aligned, Alignment(len(several), len(found), apart, percentiles)  # type: ignore[arg-type]


def _scaled(records: pd.DataFrame, factor: pd.Series) -> pd.DataFrame:
    timed = (factor != 1.0) & records["latency_ms"].notna()
    scaled = records.copy()
    for name in _TIMES:
        scaled.loc[timed, name] = records.loc[timed, name] * factor[timed]
    scaled.loc[timed, "tflops"] = records.loc[timed, "tflops"] / factor[timed]
    scaled.loc[timed, FACTOR] = records.loc[timed, FACTOR].fillna(1.0) * factor[timed]
    return scaled
