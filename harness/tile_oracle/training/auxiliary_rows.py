"""Auxiliary training data: rows of other directions that a model is trained on and not judged by.

Kernels of one family behave alike in every direction: a pipeline, a tile or a vector width costs about the
same in each. A training table may therefore have auxiliary rows, marked by a column, that trees are grown
on. Folds, metrics and the manifest's counts are those of the model's own direction.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.groups import group_codes
from tile_oracle.training.training_rows import IMPORTANCE

COMPANION = "companion"
"""Optional column of a training table: whether a row is auxiliary."""


def with_companions(table: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """A training table followed by auxiliary rows of another one; if its own rows have weights, these
    count 1."""
    weights = {IMPORTANCE: 1.0} if IMPORTANCE in table else {}
    return pd.concat(
        [table.assign(**{COMPANION: False}), others.assign(**{COMPANION: True}, **weights)], ignore_index=True
    )


def is_companion(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows of a training table are auxiliary."""
    if COMPANION not in rows:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(rows[COMPANION].to_numpy(dtype=bool))


def own_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a training table that are not auxiliary."""
    return rows[~is_companion(rows)].drop(columns=COMPANION) if COMPANION in rows else rows


def not_of_shapes(companions: pd.DataFrame, held: pd.DataFrame, grouping: str = "problem") -> pd.DataFrame:
    """The auxiliary rows whose problem (with `family`, whose layer) occurs in the held-out rows in no
    direction: the fast kernels of a shape are similar in all directions."""
    if companions.empty or held.empty:
        return companions
    both = pd.concat([companions, held], ignore_index=True).assign(direction="")
    codes = group_codes(both, grouping)
    return companions[~np.isin(codes[: len(companions)], codes[len(companions) :])]


def records_that_teach(records: pd.DataFrame, kind: Mapping[str, str]) -> pd.DataFrame:
    """The auxiliary training data in these records for a model of this arch, direction and dtype.

    Raises ModelError for a model that has no direction, or where there are none.
    """
    if "direction" not in kind or "direction" not in records:
        raise ModelError("records of other directions teach convolutions alone: GEMM has no directions")
    fits = records["direction"] != kind["direction"]
    for name in ("arch", "dtype"):
        fits &= records[name] == kind[name]
    if not fits.any():
        raise ModelError(
            f"none of the records that should teach as well is of {kind['dtype']} on {kind['arch']} in "
            f"another direction than {kind['direction']}"
        )
    return records[fits]
