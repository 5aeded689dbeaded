"""Cross-validation folds that never split a group (a problem or a family)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError


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
