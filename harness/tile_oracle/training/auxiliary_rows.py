"""Auxiliary training data: rows of other directions, or of other data types of the same size where there are
no directions, used for training but not for evaluation.

Kernels of one family behave similarly in every direction: a pipeline, a tile or a vector width costs about
the same in each. In fp16 it costs what it costs in bf16. So a training table may have auxiliary rows, marked
by a column, on which models are trained. Folds, metrics and the manifest's counts are those of the model's
own kind.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import ELEMENT_BYTES
from tile_oracle.features.groups import fold_codes
from tile_oracle.training.training_rows import IMPORTANCE

AUXILIARY = "auxiliary"
"""Optional column of a training table: whether a row is auxiliary."""


def with_auxiliary(table: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """A training table followed by auxiliary rows, with weight 1 if the table has weights."""
    weights = {IMPORTANCE: 1.0} if IMPORTANCE in table else {}
    return pd.concat(
        [table.assign(**{AUXILIARY: False}), others.assign(**{AUXILIARY: True}, **weights)], ignore_index=True
    )


def is_auxiliary(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows of a training table are auxiliary."""
    if AUXILIARY not in rows:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(rows[AUXILIARY].to_numpy(dtype=bool))


def own_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a training table that are not auxiliary."""
    return rows[~is_auxiliary(rows)].drop(columns=AUXILIARY) if AUXILIARY in rows else rows


def not_of_shapes(auxiliary: pd.DataFrame, held: pd.DataFrame, grouping: str = "problem") -> pd.DataFrame:
    """The auxiliary rows whose problem (with `family`: whose layer) the held-out rows do not have in any
    direction, data type or layout, because the fast kernels of a shape are similar in all of them."""
    if auxiliary.empty or held.empty:
        return auxiliary
    both = pd.concat([auxiliary, held], ignore_index=True)
    both = both.assign(**dict.fromkeys(("direction", "dtype"), ""))
    codes = fold_codes(both, grouping)
    return auxiliary[~np.isin(codes[: len(auxiliary)], codes[len(auxiliary) :])]


def auxiliary_records(records: pd.DataFrame, kind: Mapping[str, str]) -> pd.DataFrame:
    """The auxiliary training data in these records for a model of this arch, direction and dtype.

    For operations without directions, those of other data types of the same size. Raises ModelError if none
    of the records are suitable.
    """
    if "direction" not in kind or "direction" not in records:
        return _of_other_types(records, kind)
    fits = records["direction"] != kind["direction"]
    for name in ("arch", "dtype"):
        fits &= records[name] == kind[name]
    if not fits.any():
        raise ModelError(
            f"auxiliary training data must be of {kind['dtype']} on {kind['arch']} in another direction than "
            f"{kind['direction']}; there is none"
        )
    return records[fits]


def _of_other_types(records: pd.DataFrame, kind: Mapping[str, str]) -> pd.DataFrame:
    size = ELEMENT_BYTES[kind["dtype"]]
    fits = (records["arch"] == kind["arch"]) & (records["dtype"] != kind["dtype"])
    fits &= records["dtype"].map(ELEMENT_BYTES) == size
    if not fits.any():
        raise ModelError(
            f"auxiliary training data must be on {kind['arch']} and of another data type of {size:g} bytes "
            f"than {kind['dtype']}; there is none"
        )
    return records[fits]
