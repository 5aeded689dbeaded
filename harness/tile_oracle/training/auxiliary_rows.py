"""Auxiliary training data, used for training but not for evaluation: rows of another compiler or device, of
other directions, or of other data types of the same size where there are no directions.

Kernels of one family behave similarly in every direction, and in fp16 as in bf16: a pipeline, a tile or a
vector width costs about the same. So a training table may have auxiliary rows, marked by a column, on which
models are trained. Folds, metrics and the manifest's counts are those of the model's own kind.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import ELEMENT_BYTES
from tile_oracle.features.groups import fold_codes
from tile_oracle.model.made_by import builds_of
from tile_oracle.training.training_rows import training_rows

AUXILIARY = "auxiliary"
"""Optional column of a training table: 0 for the model's own rows, else the number of the build (device and
compiler) that made the auxiliary row. Times of different builds are not compared."""


def with_auxiliary(table: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Returns a training table followed by auxiliary rows.

    others: rows with the numbers of their builds, or all of one build.
    """
    numbers = others.get(AUXILIARY, 1)
    return pd.concat(
        [table.assign(**{AUXILIARY: 0}), others.assign(**{AUXILIARY: numbers})], ignore_index=True
    )


def is_auxiliary(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows of a training table are auxiliary."""
    if AUXILIARY not in rows:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(rows[AUXILIARY].to_numpy() != 0)


def own_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of a training table that are not auxiliary."""
    return rows[~is_auxiliary(rows)].drop(columns=AUXILIARY) if AUXILIARY in rows else rows


def not_of_shapes(auxiliary: pd.DataFrame, held: pd.DataFrame, grouping: str = "problem") -> pd.DataFrame:
    """Returns the auxiliary rows whose problem (with `family`: whose layer) the held-out rows do not have in
    any direction, data type or layout, because the fast kernels of a shape are similar in all of them."""
    if auxiliary.empty or held.empty:
        return auxiliary
    both = pd.concat([auxiliary, held], ignore_index=True)
    both = both.assign(**dict.fromkeys(("direction", "dtype"), ""))
    codes = fold_codes(both, grouping)
    return auxiliary[~np.isin(codes[: len(auxiliary)], codes[len(auxiliary) :])]


def auxiliary_rows(records: pd.DataFrame, own: pd.DataFrame, kind: Mapping[str, str]) -> pd.DataFrame:
    """Returns the training rows in records that are auxiliary to a model of this arch, direction and dtype.

    They are of another direction (without directions: of another data type of the same size), or of a build
    that made none of `own`, the model's own records. Raises ModelError if none of the records are suitable.
    """
    if "direction" in kind and "direction" in records:
        other, fits = "direction", records["dtype"] == kind["dtype"]
    else:
        other, fits = "dtype", records["dtype"].map(ELEMENT_BYTES) == ELEMENT_BYTES[kind["dtype"]]
    builds = builds_of(records)
    # Pairs that no compiler was asked for have no build of their own.
    fits &= builds.isin(builds[records["status"] == "ok"].unique())
    fits &= (records["arch"] == kind["arch"]) & (
        (records[other] != kind[other]) | ~builds.isin(builds_of(own).unique())
    )
    if not fits.any():
        alike = (
            f"of {kind['dtype']}" if other == "direction" else f"of {ELEMENT_BYTES[kind['dtype']]:g} bytes"
        )
        raise ModelError(
            f"auxiliary training data must be {alike} on {kind['arch']}, with another {other} than "
            f"{kind[other]} or from another compiler or device; there is none"
        )
    tables = [
        training_rows(rows).table.assign(**{AUXILIARY: number})
        for number, (_, rows) in enumerate(records[fits].groupby(builds[fits], sort=True), 1)
    ]
    return pd.concat(tables, ignore_index=True)
