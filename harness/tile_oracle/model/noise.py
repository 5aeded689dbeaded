"""The noise of measured times, for ties, aliases and the noise ceiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.features.feature_table import Array
from tile_oracle.record.final import is_censored

_LEAST_REPEATS = 200
_ROBUST = 1.4826
_PARTS = 8
"""Number of parts into which the measurements are sorted by time; each gives one deviation."""
_LEAST_RELATIVE = 1e-4
_LEAST_LOG, _MOST_LOG = float(np.log(1e-9)), float(np.log(1e4))
"""Bounds of both parts, as logarithms."""


@dataclass(frozen=True)
class NoiseModel:
    """Standard deviation of ln(time): a relative part and an absolute part, added in quadrature.

    The default fits twins and repeats in the public gfx950 measurements: 0.4 % and 0.25 microseconds.
    """

    relative: float = 0.004
    absolute_ms: float = 0.00025

    def sigma(self, latency_ms: Any) -> Array:
        """Standard deviation of the natural log of one measurement at that latency."""
        time = np.asarray(latency_ms, dtype=np.float64)
        return np.asarray(np.sqrt(self.relative**2 + (self.absolute_ms / time) ** 2))

    def as_json(self) -> dict[str, float]:
        return {"relative": self.relative, "absolute_ms": self.absolute_ms}


def measured_noise(records: pd.DataFrame) -> NoiseModel:
    """The noise of the ok pairs that the records have more than once; the default with fewer than 200
    repeats. A few rows that are many times too slow do not change it."""
    repeated = _repeated(records)
    if len(repeated) < _LEAST_REPEATS:
        return NoiseModel()
    grouped = repeated.groupby("pair")["log"]
    count = grouped.transform("size").to_numpy(dtype=np.float64)
    level = grouped.transform("mean").to_numpy()
    deviation = (repeated["log"].to_numpy() - level) * np.sqrt(count / (count - 1))
    order = np.argsort(level)
    parts = np.array_split(order, _PARTS)
    scales = np.array([_ROBUST * np.median(np.abs(deviation[part])) for part in parts])
    times = np.array([np.exp(np.median(level[part])) for part in parts])
    return _fitted(times, np.maximum(scales, _LEAST_RELATIVE))


def _fitted(times_ms: Array, scales: Array) -> NoiseModel:
    """The two parts with the least squared log error of the deviations at these times."""
    import scipy.optimize  # not at the top: it is slow to import

    def misfit(logs: Array) -> Array:
        relative, absolute = np.exp(logs)
        return np.asarray(0.5 * np.log(relative**2 + (absolute / times_ms) ** 2) - np.log(scales))

    start = np.log([float(scales.min()), float(times_ms[0] * scales[0])])
    found = scipy.optimize.least_squares(misfit, start, bounds=(_LEAST_LOG, _MOST_LOG))
    relative, absolute = np.exp(found.x)
    return NoiseModel(float(relative), float(absolute))


def enough_repeats(records: pd.DataFrame) -> bool:
    """Whether the records have enough repeats to measure the noise (`measured_noise`)."""
    return len(_repeated(records)) >= _LEAST_REPEATS


def _repeated(records: pd.DataFrame) -> pd.DataFrame:
    """`pair` and `log` (natural log of the time) of the ok rows of pairs with several."""
    ok = records[(records["status"] == "ok") & (records["latency_ms"] > 0) & ~is_censored(records)]
    log_time = np.log(ok["latency_ms"].to_numpy(dtype=np.float64))
    table = pd.DataFrame(
        {"pair": ok["problem"].astype(str) + " " + ok["kernel"].astype(str), "log": log_time}
    )
    return table[table.groupby("pair")["log"].transform("size") > 1]
