"""Groups of rows: those of one problem, or of one family of problems."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.operation import operation_named
from tile_oracle.record.final import records_op

GROUPINGS = ("problem", "family")
"""What defines a group: the whole problem key, or the key without batch and image size."""


def fold_codes(rows: pd.DataFrame, grouping: str = "problem") -> npt.NDArray[np.int64]:
    """Groups that cross-validation keeps in one fold, (rows,): of one problem (or one family), or by the
    operation's `fold_fields`. For GEMM, as published, a group is all rows of one (M, N, K) in any layout, or
    (family) of one (N, K). Raises ModelError for an unknown grouping."""
    if grouping not in GROUPINGS:
        raise ModelError(f"grouping {grouping!r} is not one of {', '.join(GROUPINGS)}")
    fold_fields = operation_named(records_op(rows)).fold_fields
    return _codes(rows, grouping, rows if fold_fields is None else fold_fields)


def group_codes(rows: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns a group number per row, (rows,), equal for rows of one problem."""
    return _codes(rows, "problem", rows)


def _codes(rows: pd.DataFrame, grouping: str, among: Container[str]) -> npt.NDArray[np.int64]:
    names = [one for one in operation_named(records_op(rows)).group_fields(grouping) if one in among]
    return np.asarray(rows.groupby(names, sort=False, dropna=False).ngroup().to_numpy(dtype=np.int64))


def group_minimum(values: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Returns the least value of each row's group, (rows,)."""
    least = np.full(int(groups.max(initial=-1)) + 1, np.inf)
    np.minimum.at(least, groups, values)
    return least[groups]


# ---- Cross-validation folds that never split a group (a problem or a family) ---------------------


def group_folds(
    groups: Sequence[Hashable] | npt.NDArray[np.int64], n_splits: int, seed: int = 0
) -> npt.NDArray[np.int64]:
    """Returns the fold (0 to n_splits - 1) of every row; rows of one group share a fold.

    Groups go, largest first, to the fold with the fewest rows so far; the seed orders groups of equal size.
    The same rows and seed give the same folds. Raises ModelError with fewer groups than folds.
    """
    codes, found = pd.factorize(
        pd.Series(list(groups), dtype=object) if not isinstance(groups, np.ndarray) else groups
    )
    if not 2 <= n_splits <= len(found):
        raise ModelError(
            f"cross-validation in {n_splits} folds needs at least {max(n_splits, 2)} different groups; "
            f"there {'is' if len(found) == 1 else 'are'} {len(found)}"
        )
    sizes = np.bincount(codes, minlength=len(found))
    shuffled = np.random.default_rng(seed).permutation(len(found))
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    load = np.zeros(n_splits, dtype=np.int64)
    fold_of_group = np.empty(len(found), dtype=np.int64)
    for group in order:
        fold = int(np.argmin(load))
        fold_of_group[group] = fold
        load[fold] += sizes[group]
    return np.asarray(fold_of_group[codes], dtype=np.int64)
