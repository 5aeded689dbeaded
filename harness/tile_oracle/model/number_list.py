"""Numbers in the text of a model."""

from __future__ import annotations

import warnings

import numpy as np

from tile_oracle.features.feature_table import Array


def numbers_of(text: str) -> Array:
    """The numbers of a list that spaces separate. Numpy's own parser is five times as fast as Python's, and
    exact, too. Raises ValueError for anything else in the text."""
    if not text:
        return np.zeros(0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error", DeprecationWarning
        )  # older numpy only warns where it stopped in the text
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            raise ValueError("no list of numbers") from None
