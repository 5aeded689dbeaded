"""The targets of tree models, and how a prediction becomes a time.

An absolute target can be turned into a latency; a relative one only orders the kernels of a problem.
Every target's score is in natural-log units, lower is faster, so scores of different targets can be
averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_minimum
from tile_oracle.features.schemas import work_of

_RELEVANCE_LEVELS = 31
_RELEVANCE_FLOOR = 0.5

LEAST_QUANTITY = 1e-9
"""The lower limit of predicted TFLOPS, milliseconds or GB/s."""


@dataclass(frozen=True)
class Target:
    """`name`: as in the model file's name. `objective`: what LightGBM minimises. `relative`: only the order
    within a problem is fitted. `logged`: the published log1p is applied to the label."""

    name: str
    meaning: str
    objective: str = "regression"
    relative: bool = False
    logged: bool = False

    @property
    def is_score(self) -> bool:
        """Whether predictions are scores without a unit."""
        return self.objective != "regression"

    def unlogged(self) -> Target:
        """Returns the same target, trained on the plain value."""
        return replace(self, logged=False)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("tflops", "log1p of TFLOPS, as published", logged=True),
        Target("latency", "log1p of the latency in ms, as published", logged=True),
        Target("bandwidth", "log1p of GB/s, every tensor moved once, as published", logged=True),
        Target("log_time", "natural log of the latency in ms"),
        Target("correction", "natural log of the latency over the physical model's"),
        Target("log_efficiency", "natural log of TFLOPS over the problem's best", relative=True),
        Target("lambdarank", "order of the kernels (LambdaRank)", objective="lambdarank", relative=True),
    )
}
"""Every tree target by its name."""


def target_named(name: str) -> Target:
    """Raises ModelError listing the known targets."""
    try:
        return TARGETS[name]
    except KeyError:
        raise ModelError(f"no target {name!r}; known: {', '.join(TARGETS)}") from None


def label(target: Target, rows: pd.DataFrame, groups: npt.NDArray[np.int64]) -> Array:
    """Returns the labels of the trees, (rows,). rows need latency_ms; groups: the problem number of each row.

    Not for `correction`, whose label depends on the fitted physical model (training.fit).
    """
    log_time = np.log(rows["latency_ms"].to_numpy(dtype=np.float64))
    if target.name == "log_time":
        return np.asarray(log_time)
    if target.relative:
        log_efficiency = group_minimum(log_time, groups) - log_time
        if target.name == "lambdarank":
            share = (np.exp(log_efficiency) - _RELEVANCE_FLOOR) / (1 - _RELEVANCE_FLOOR)
            return np.asarray(np.rint(np.clip(share, 0, 1) * (_RELEVANCE_LEVELS - 1)))
        return np.asarray(log_efficiency)
    value = _quantity(target, rows, log_time)
    return np.asarray(np.log1p(value) if target.logged else value)


def log_time_of(target: Target, raw: Array, rows: Mapping[str, Any] | pd.DataFrame) -> Array:
    """Returns the trees' raw output as a score: ln(latency in ms) for an absolute target, up to a constant
    per problem for a relative one. Log targets are inverted (expm1)."""
    if target.name in ("log_time", "correction"):
        return raw
    if target.relative:
        return -raw
    value = np.maximum(exact_math.expm1(raw) if target.logged else raw, LEAST_QUANTITY)
    if target.name == "latency":
        return exact_math.log(value)
    work = work_of(rows)
    if target.name == "tflops":
        return np.asarray(exact_math.log(work.flops) - exact_math.log(value * 1e9))
    return np.asarray(exact_math.log(work.bytes) - exact_math.log(value * 1e6))


def _quantity(target: Target, rows: pd.DataFrame, log_time: Array) -> Array:
    latency_ms = np.exp(log_time)
    if target.name == "latency":
        return latency_ms
    work = work_of(rows)
    return np.asarray(
        work.flops / (latency_ms * 1e9) if target.name == "tflops" else work.bytes / (latency_ms * 1e6)
    )
