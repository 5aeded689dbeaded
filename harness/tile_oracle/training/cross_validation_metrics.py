"""Out-of-fold predictions -> efficiency and regression metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import Efficiency, select, summarise
from tile_oracle.record.final import problems_of, records_op


@dataclass(frozen=True)
class Check:
    """The result of cross-validation by one grouping. r2 and rmse_log are of ln(TFLOPS), None if the
    predictions only order kernels."""

    grouping: str
    n_splits: int
    efficiency: Efficiency
    r2: float | None
    rmse_log: float | None

    def as_json(self) -> dict[str, object]:
        return {
            "grouping": self.grouping,
            "n_splits": self.n_splits,
            "r2_log_tflops": self.r2,
            "rmse_log_tflops": self.rmse_log,
            **asdict(self.efficiency),
        }


def settled(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns a training table as settled measurements (tile_oracle.record.final), all of them ok."""
    return rows.assign(
        op=records_op(rows), status="ok", detail="", remeasured=False, sweep_tflops=rows["tflops"]
    )


def selection_of(rows: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Returns the predictions' pick for each problem of a training table (tile_oracle.judge.selection)."""
    final = settled(rows)
    return select(problems_of(final), final, find_oracles(final), predictions)


def check(
    rows: pd.DataFrame, predictions: pd.DataFrame, grouping: str, n_splits: int, *, scores: bool = False
) -> Check:
    """Metrics of out-of-fold predictions (problem, kernel, predicted_tflops). scores: predictions are not
    TFLOPS, so regression metrics do not apply (`Recipe.orders_only`)."""
    efficiency = summarise(selection_of(rows, predictions))
    if scores:
        return Check(grouping, n_splits, efficiency, None, None)
    joined = rows[["problem", "kernel", "tflops"]].merge(predictions, on=["problem", "kernel"])
    truth = np.log(joined["tflops"].to_numpy(dtype=np.float64))
    error = np.log(np.maximum(joined["predicted_tflops"].to_numpy(dtype=np.float64), 1e-12)) - truth
    spread = float(((truth - truth.mean()) ** 2).sum())
    r2 = 1.0 - float((error**2).sum()) / spread if spread > 0 else 0.0
    return Check(grouping, n_splits, efficiency, r2, float(np.sqrt((error**2).mean())))


def metrics_json(checks: tuple[Check, ...], note: str) -> Mapping[str, object]:
    """cv_metrics_{target}.json: one object per grouping, or why there is none."""
    if not checks:
        return {"note": note}
    return {f"by_{one.grouping}": one.as_json() for one in checks}
