"""The noise of measured times, for aliases and the physical model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tile_oracle.features.feature_table import Array


@dataclass(frozen=True)
class NoiseModel:
    """Standard deviation of ln(time): a relative part and an absolute part, added in quadrature.

    The default fits twins and repeats in the public gfx950 measurements: 0.4 % and 0.25 microseconds.
    """

    relative: float = 0.004
    absolute_ms: float = 0.00025

    def sigma(self, latency_ms: Any) -> Array:
        """Returns the standard deviation of the natural log of one measurement at that latency."""
        time = np.asarray(latency_ms, dtype=np.float64)
        return np.asarray(np.sqrt(self.relative**2 + (self.absolute_ms / time) ** 2))
