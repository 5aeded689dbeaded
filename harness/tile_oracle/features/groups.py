"""Which rows belong together: those of one problem, or of one family of problems."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.problem import GEMM_PROBLEM_FIELDS, PROBLEM_FIELDS

_IMAGE_FIELDS = ("N", "Di", "Hi", "Wi")
GROUPINGS = ("problem", "family")
"""How rows are held together: by the whole problem key, or by the key without batch and image size."""


def fold_codes(rows: pd.DataFrame, grouping: str = "problem") -> npt.NDArray[np.int64]:
    """What cross-validation holds together. For convolutions `group_codes`; for GEMM, as published, all rows
    of one (M, N, K), whatever the layout, or (family) of one (N, K)."""
    if "layout" not in rows or "direction" in rows:
        return group_codes(rows, grouping)
    _check(grouping)
    names = ["M", "N", "K"] if grouping == "problem" else ["N", "K"]
    numbers = rows.groupby(names, sort=False, dropna=False).ngroup()
    return np.asarray(numbers.to_numpy(dtype=np.int64))


def _check(grouping: str) -> None:
    if grouping not in GROUPINGS:
        raise ModelError(f"grouping {grouping!r} is not one of {', '.join(GROUPINGS)}")


def group_codes(rows: pd.DataFrame, grouping: str = "problem") -> npt.NDArray[np.int64]:
    """A number per row, equal for rows of one problem (or one family).

    Raises ModelError for a grouping that is not in GROUPINGS.
    """
    _check(grouping)
    gemm = "layout" in rows and "direction" not in rows
    fields, varying = (GEMM_PROBLEM_FIELDS, ("M",)) if gemm else (PROBLEM_FIELDS, _IMAGE_FIELDS)
    names = [n for n in fields if n in rows and (grouping == "problem" or n not in varying)]
    numbers = rows.groupby(names, sort=False, dropna=False).ngroup()
    return np.asarray(numbers.to_numpy(dtype=np.int64))
