"""Folds never split a group, and are balanced."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.errors import ModelError
from tile_oracle.features.groups import fold_codes, group_folds


@given(st.lists(st.integers(0, 30), min_size=2, max_size=200), st.integers(2, 6), st.integers(0, 3))
@settings(max_examples=80)
def test_a_group_is_never_split_and_every_fold_is_used(groups: list[int], n_splits: int, seed: int) -> None:
    if len(set(groups)) < n_splits:
        with pytest.raises(ModelError, match="different groups"):
            group_folds(groups, n_splits, seed)
        return
    folds = group_folds(groups, n_splits, seed)
    assert set(folds) == set(range(n_splits))
    for group in set(groups):
        assert len({fold for fold, g in zip(folds, groups, strict=True) if g == group}) == 1
    assert (folds == group_folds(groups, n_splits, seed)).all()


def test_folds_are_balanced() -> None:
    folds = group_folds(np.repeat(np.arange(50), 20), 5)
    assert np.bincount(folds).tolist() == [200] * 5


def test_dilation_separates_problems_and_image_size_does_not_separate_families(records: pd.DataFrame) -> None:
    row = records.head(1)
    rows = pd.concat([row, row.assign(dilation_h=2), row.assign(N=row["N"] + 1, Hi=row["Hi"] + 8)])
    assert fold_codes(rows, "problem").tolist() == [0, 1, 2]
    assert fold_codes(rows, "family").tolist() == [0, 1, 0]
    with pytest.raises(ModelError, match="grouping 'layer'"):
        fold_codes(rows, "layer")
