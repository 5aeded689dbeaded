"""Judges rankings by recorded measurements: the analysis of a session that replays them, with intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.judge.bootstrap import Interval, Statistic, interval, mean, median, p10
from tile_oracle.judge.picker import PICKS, Origin
from tile_oracle.judge.selection import COVERED, Efficiency
from tile_oracle.record.final import problems_of
from tile_oracle.report.data import ReportData, RunInfo, Training, analyse
from tile_oracle.report.files import verdict_document

HEADLINES: dict[str, Statistic] = {
    "mean": mean,
    "median": median,
    "P10": p10,
    "P90": lambda values: np.asarray(np.percentile(values, 90, axis=-1)),
    "min": lambda values: np.asarray(values.min(axis=-1)),
}
"""The headline metrics of efficiency."""


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one model's rankings."""

    name: str
    report: ReportData

    @property
    def efficiency(self) -> Efficiency:
        """The metrics over all problems."""
        return self.report.efficiency

    @property
    def selection(self) -> pd.DataFrame:
        """One row for each problem (judge.selection.select)."""
        return self.report.selection

    @cached_property
    def headlines(self) -> dict[str, Interval]:
        """Efficiency in percent with bootstrap intervals."""
        covered = self.selection[self.selection["coverage"] == COVERED]
        percent = 100.0 * covered["efficiency"].to_numpy(dtype=np.float64)
        return {name: interval(percent, statistic) for name, statistic in HEADLINES.items()}

    def as_json(self) -> dict[str, Any]:
        """Returns the content of --json: that of a session's verdict.json, with the intervals."""
        return {
            **verdict_document(self.report),
            "headlines_percent": {name: asdict(value) for name, value in self.headlines.items()},
        }


def evaluate(
    name: str,
    records: pd.DataFrame,
    rankings: pd.DataFrame,
    *,
    ranked_by: Origin | None = None,
    training: Training | None = None,
) -> Evaluation:
    """Evaluates rankings (problem, kernel, predicted_tflops) against records. Raises ModelError if no problem
    is covered."""
    known = records.reindex(columns=["target", "arch", "device"]).bfill().iloc[0].fillna("")
    run = RunInfo(
        name, target=known["target"], arch=known["arch"], device=known["device"], replayed="records"
    )
    report = analyse(
        records,
        problems_of(records),
        rankings,
        run=run,
        ranked_by=ranked_by or Origin(PICKS, name),
        training=training,
    )
    if not report.efficiency.covered:
        raise ModelError(f"{name}: no problem has both an ok measurement and a measured pick")
    return Evaluation(name, report)
