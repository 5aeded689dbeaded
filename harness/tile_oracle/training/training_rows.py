"""Records -> training rows: verified, plausible, one per pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CODE_COLUMNS
from tile_oracle.features.feature_table import ELEMENT_BYTES
from tile_oracle.features.groups import fold_codes
from tile_oracle.features.schemas import flops_of
from tile_oracle.kernel import source_of
from tile_oracle.model.made_by import builds_of
from tile_oracle.operation import operation_named
from tile_oracle.record.final import check_comparable, is_censored, records_op
from tile_oracle.record.schema import kernel_columns, problem_columns

_FAILED = ("wrong", "flaky", "crash", "timeout")


def pair_columns_of(op: str) -> tuple[str, ...]:
    """Returns the columns of a pair of problem and kernel of any operation. Raises RecordError."""
    return (*problem_columns(op), *kernel_columns(op))


@dataclass(frozen=True)
class TrainingRows:
    """One row per problem and kernel.

    `table` has `problem` (id), `kernel` (name), all their fields, `latency_ms` (median of the pair's
    measurements), `tflops`, `measurements` (their number) and, if the records have them, `source_hash`,
    `at_least_ms` and the metrics of the binary (CODE_COLUMNS). `left_out`: number of unused records by
    reason.
    """

    table: pd.DataFrame
    left_out: dict[str, int]

    def __len__(self) -> int:
        return len(self.table)

    @property
    def problems(self) -> int:
        return int(self.table["problem"].nunique())


def training_rows(records: pd.DataFrame) -> TrainingRows:
    """Returns the usable rows of a record table: ok, of a pair without a failure in any of its rows, and of a
    kernel that the operation has features for.

    Raises ModelError when a column is missing or nothing is left, RecordError as `check_comparable`.
    """
    needed = ("problem", "kernel", "status", "latency_ms", *pair_columns_of(records_op(records)))
    missing = [name for name in needed if name not in records]
    if missing:
        raise ModelError(f"the records lack the columns {', '.join(missing)}")
    check_comparable(records)
    names = records["kernel"].astype(str)
    without_features = 0
    if operation_named(records_op(records)).for_models.pool is None:
        named = names.isin([name for name in names.unique() if source_of(name)])
        without_features = int((named & (records["status"] == "ok")).sum())
        records = records[~named]
    latency = pd.to_numeric(records["latency_ms"], errors="coerce").to_numpy(dtype=np.float64)
    timed = np.isfinite(latency) & (latency > 0)
    status = records["status"].astype(str).to_numpy()
    ok = status == "ok"
    left_out = {str(word): int((status == word).sum()) for word in np.unique(status[~ok])}
    failed = records[np.isin(status, _FAILED)]
    tainted = np.zeros(len(records), dtype=bool)
    if len(failed):
        pairs = pd.MultiIndex.from_frame(records[["problem", "kernel"]].astype(str))
        tainted = ok & pairs.isin(pd.MultiIndex.from_frame(failed[["problem", "kernel"]].astype(str)))
    for reason, mask in (
        ("of pairs that failed another time", tainted),
        ("without a time", ok & ~timed & ~tainted),
    ):
        if mask.any():
            left_out[reason] = int(mask.sum())
    if without_features:
        left_out["of kernels that have no features (Triton, libraries)"] = without_features
    rows = records[ok & timed & ~tainted]
    if rows.empty:
        raise ModelError("there are no ok measurements to train on" + _counts(left_out))
    return TrainingRows(_one_a_pair(rows), left_out)


def _one_a_pair(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the median time of each pair, over its last round. A censored time counts only where there is
    no other: as a sample of one run, with its lower bound."""
    keys = ["problem", "kernel"]
    censored = is_censored(rows)
    if censored.any():
        known = pd.MultiIndex.from_frame(rows.loc[~censored, keys].astype(str))
        rows = rows[~(censored & pd.MultiIndex.from_frame(rows[keys].astype(str)).isin(known))]
    if "round" in rows and rows["round"].nunique() > 1:
        last = rows.groupby(keys, sort=False)["round"].transform("max")
        rows = rows[rows["round"] == last]
    grouped = rows.groupby(keys, sort=True)
    table = grouped[list(pair_columns_of(records_op(rows)))].first()
    table["latency_ms"] = grouped["latency_ms"].median()
    for name in ("source_hash", "at_least_ms", *CODE_COLUMNS):
        if name in rows:
            table[name] = grouped[name].first()
    table["measurements"] = grouped.size()
    table = table.reset_index()
    table["tflops"] = flops_of(table) / (table["latency_ms"] * 1e9)
    return table


def _counts(left_out: dict[str, int]) -> str:
    if not left_out:
        return ""
    return "; left out: " + ", ".join(f"{count} {word}" for word, count in sorted(left_out.items()))


# ---- auxiliary training data -----------------------------------------------------------------------
# Rows of another compiler or device, of other directions, or of other data types of the same size where there
# are no directions: used for training but not for evaluation.
#
# Kernels of one family behave similarly in every direction, and in fp16 as in bf16: a pipeline, a tile or a
# vector width costs about the same. So a training table may have auxiliary rows, marked by a column, on which
# models are trained. Folds, metrics and the manifest's counts are those of the model's own kind.

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
        size = records["dtype"].map(ELEMENT_BYTES) == ELEMENT_BYTES.get(kind["dtype"])
        other, fits = "dtype", size | (records["dtype"] == kind["dtype"])
    builds = builds_of(records)
    # Pairs that no compiler was asked for have no build of their own.
    fits &= builds.isin(builds[records["status"] == "ok"].unique())
    fits &= (records["arch"] == kind["arch"]) & (
        (records[other] != kind[other]) | ~builds.isin(builds_of(own).unique())
    )
    if not fits.any():
        alike = f"of {kind['dtype']}" + (" or a type of its size" if other == "dtype" else "")
        raise ModelError(
            f"auxiliary training data must be {alike} on {kind['arch']}, with another {other} than "
            f"{kind[other]} or from another compiler or device; there is none"
        )
    tables = [
        training_rows(rows).table.assign(**{AUXILIARY: number})
        for number, (_, rows) in enumerate(records[fits].groupby(builds[fits], sort=True), 1)
    ]
    return pd.concat(tables, ignore_index=True)
