"""Accuracy of a model's predictions: R2 and RMSE of every predicted quantity.

TFLOPS, latency, bandwidth, ln(time) and efficiency of a pair follow from one prediction. Each member of the
model is also evaluated on its own target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_minimum
from tile_oracle.features.schemas import work_of
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.tree_targets import TARGETS

Codes = npt.NDArray[np.int64]

PICK = "pick"
"""The value of `of` for metrics of the whole model; a member's metrics have its name."""

_UNITS = {
    "tflops": "TFLOPS",
    "latency": "ms",
    "bandwidth": "GB/s",
    "log_time": "ln(ms)",
    "efficiency": "share",
    "log_efficiency": "ln(share)",
}


@dataclass(frozen=True)
class TargetMetrics:
    """Accuracy of one predicted quantity. of: the pick, or the member that predicts it.

    r2: share of the variance over all pairs that the predictions explain (it may be negative), 0 without
    variance; rmse in `unit`; both None for scores without a unit. rank_correlation: mean over the problems of
    Spearman's coefficient with the measured quantity; None if no problem has two different values.
    """

    of: str
    quantity: str
    unit: str
    pairs: int
    r2: float | None
    rmse: float | None
    rank_correlation: float | None


def r2_of(truth: Array, predicted: Array) -> float:
    """1 - squared error / variance of the truth; 0 if the variance is 0."""
    total = float(((truth - truth.mean()) ** 2).sum())
    return 1.0 - float(((predicted - truth) ** 2).sum()) / total if total > 0 else 0.0


def target_metrics(ok: pd.DataFrame, predictor: Predictor | None = None) -> tuple[TargetMetrics, ...]:
    """Returns the metrics of the pick and, with a predictor, of every member. If the model's scores only
    order kernels, so does the pick's prediction.

    ok: ok pairs, one row each, with the columns of problem and kernel, latency_ms and predicted_tflops.
    """
    codes = pd.factorize(ok["problem"])[0]
    work = work_of(ok)
    measured = _quantities(np.log(ok["latency_ms"].to_numpy(dtype=np.float64)), work.flops, work.bytes, codes)
    tflops = np.maximum(ok["predicted_tflops"].to_numpy(dtype=np.float64), 1e-12)
    by_pick = _quantities(np.log(work.flops) - np.log(tflops * 1e9), work.flops, work.bytes, codes)
    names = ("tflops", "latency", "bandwidth", "log_time", "efficiency")
    if predictor is not None and predictor.ranker.orders_only:
        found = [_without_unit(PICK, measured["log_efficiency"], by_pick["log_efficiency"], codes)]
    else:
        found = [_metrics(PICK, name, measured[name], by_pick[name], codes) for name in names]
    if predictor is None:
        return tuple(found)
    for member, score in predictor.scores(ok).items():
        target = TARGETS.get(member)
        if target is not None and target.relative and target.objective != "regression":
            found.append(_without_unit(member, measured["log_efficiency"], -score, codes))
        elif target is not None and target.relative:
            found.append(_metrics(member, "log_efficiency", measured["log_efficiency"], -score, codes))
        else:
            name = member if member in _UNITS else "log_time"
            said = _quantities(score, work.flops, work.bytes, codes)[name]
            found.append(_metrics(member, name, measured[name], said, codes))
    return tuple(found)


def _quantities(log_time: Array, flops: Array, bytes_: Array, codes: Codes) -> Mapping[str, Array]:
    """Returns all quantities that follow from ln(latency in ms)."""
    time_ms = np.exp(np.clip(log_time, -50, 50))
    log_efficiency = group_minimum(log_time, codes) - log_time
    return {
        "tflops": flops / (time_ms * 1e9),
        "latency": time_ms,
        "bandwidth": bytes_ / (time_ms * 1e6),
        "log_time": log_time,
        "efficiency": np.exp(log_efficiency),
        "log_efficiency": log_efficiency,
    }


def _metrics(of: str, quantity: str, truth: Array, predicted: Array, codes: Codes) -> TargetMetrics:
    rmse = float(np.sqrt(((predicted - truth) ** 2).mean()))
    correlation = _rank_correlation(truth, predicted, codes)
    return TargetMetrics(
        of, quantity, _UNITS[quantity], len(truth), r2_of(truth, predicted), rmse, correlation
    )


def _without_unit(of: str, truth: Array, score: Array, codes: Codes) -> TargetMetrics:
    return TargetMetrics(of, "order", "", len(truth), None, None, _rank_correlation(truth, score, codes))


def _rank_correlation(truth: Array, predicted: Array, codes: Codes) -> float | None:
    table = pd.DataFrame({"problem": codes, "a": truth, "b": predicted})
    ranks = table.groupby("problem")[["a", "b"]].rank()
    centred = ranks - ranks.groupby(codes).transform("mean")
    squares = (centred**2).groupby(codes).sum()
    products = (centred["a"] * centred["b"]).groupby(codes).sum()
    scale = np.sqrt(squares["a"] * squares["b"])
    some = scale > 0
    return float((products[some] / scale[some]).mean()) if some.any() else None
