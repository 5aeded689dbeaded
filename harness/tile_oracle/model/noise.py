"""The noise of measured times, for aliases and the physical model."""

from __future__ import annotations

from typing import Any

import numpy as np

from tile_oracle.features.feature_table import Array

_RELATIVE = 0.004
_ABSOLUTE_MS = 0.00025
"""These two fit twins and repeats in the public gfx950 measurements."""


def noise_of(latency_ms: Any) -> Array:
    """Returns the standard deviation of ln(time) of one measurement at that latency: a relative part and an
    absolute part, added in quadrature."""
    time = np.asarray(latency_ms, dtype=np.float64)
    return np.asarray(np.sqrt(_RELATIVE**2 + (_ABSOLUTE_MS / time) ** 2))
