"""Judges rankings by recorded measurements: the analysis of a session that replays them, and how exact the
predictions are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.evaluation.prediction_metrics import TargetMetrics, target_metrics
from tile_oracle.judge.bootstrap import Interval, Statistic, interval, mean, median, p10
from tile_oracle.judge.picker import COLUMNS, PICKER, PICKS, Origin
from tile_oracle.judge.selection import COVERED, Efficiency
from tile_oracle.model.predictor import Predictor
from tile_oracle.record.final import is_censored, problems_of, records_op
from tile_oracle.report.data import ReportData, RunInfo, Training, analyse
from tile_oracle.report.files import verdict_document
from tile_oracle.training.training_rows import pair_columns_of

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
    """The evaluation of one model's rankings. targets: accuracy of every quantity that the model predicts."""

    name: str
    report: ReportData
    targets: tuple[TargetMetrics, ...]

    @property
    def efficiency(self) -> Efficiency:
        """The metrics over all problems."""
        return self.report.efficiency

    @property
    def selection(self) -> pd.DataFrame:
        """One row for each problem (judge.selection.select)."""
        return self.report.selection

    @property
    def slices(self) -> pd.DataFrame:
        """Efficiency by kind of problem (judge.slices.slice_table)."""
        return self.report.slices

    @cached_property
    def headlines(self) -> dict[str, Interval]:
        """Efficiency in percent with bootstrap intervals."""
        covered = self.selection[self.selection["coverage"] == COVERED]
        percent = 100.0 * covered["efficiency"].to_numpy(dtype=np.float64)
        return {name: interval(percent, statistic) for name, statistic in HEADLINES.items()}

    def as_json(self) -> dict[str, Any]:
        """Returns the content of --json: that of a session's verdict.json, with the intervals and the
        predictions."""
        return {
            **verdict_document(self.report),
            "headlines_percent": {name: asdict(value) for name, value in self.headlines.items()},
            "targets": [asdict(one) for one in self.targets],
        }


def evaluate(
    name: str,
    records: pd.DataFrame,
    rankings: pd.DataFrame,
    predictor: Predictor | None = None,
    *,
    ranked_by: Origin | None = None,
    training: Training | None = None,
) -> Evaluation:
    """Evaluates rankings (problem, kernel, predicted_tflops) against records.

    predictor: the model, to evaluate its members, too. Raises ModelError if no problem is covered.
    """
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
    if report.ranked_by.kind == PICKER:  # it orders kernels, and predicts nothing
        return Evaluation(name, report, ())
    return Evaluation(name, report, target_metrics(_pairs(rankings, records, report.final), predictor))


def _pairs(rankings: pd.DataFrame, records: pd.DataFrame, final: pd.DataFrame) -> pd.DataFrame:
    """Returns the ranked ok pairs of known time with all the columns of problem and kernel, in order."""
    pair = ["problem", "kernel"]
    ok = final.loc[(final["status"] == "ok") & ~is_censored(final), [*pair, "latency_ms"]]
    names = list(dict.fromkeys([*pair, *pair_columns_of(records_op(records))]))
    fields = records[names].drop_duplicates(pair)
    return rankings[list(COLUMNS)].merge(ok, on=pair).merge(fields, on=pair)
