"""What each feature adds to the difference of two predictions of a forest: Shapley values, exactly.

The players are the features, each of which changes from its value in the one row to that in the other
(baseline Shapley values: Sundararajan and Najmi, 2020, arXiv:1908.08474). A feature that is the same in both,
such as all of the problem's, adds nothing. A leaf that only rows with the features P of the one and Q of the
other reach adds (|P| - 1)! |Q|! / (|P| + |Q|)! of its value to each of P, and takes |P|! (|Q| - 1)! /
(|P| + |Q|)! from each of Q (Lundberg et al., 2020, doi:10.1038/s42256-019-0138-9).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tile_oracle.features.feature_table import Array
from tile_oracle.model.forest import Forest

_Mask = npt.NDArray[np.bool_]
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING, _ZERO_IS_MISSING, _NAN_IS_MISSING = 12, 4, 8
"""Bits of the decision type, and their values."""
_ZERO = 1e-35
"""LightGBM's kZeroThreshold."""


def forest_shares(forest: Forest, row: Array, other: Array) -> tuple[Array, float, float]:
    """Returns each feature's share of the score of `row` minus that of `other`, (features,), and both scores.

    row, other: values of the features, (features,).
    """
    lefts = goes_left(forest, row), goes_left(forest, other)
    leaves = forest.num_leaves.astype(np.int64)
    first_leaf, first_split = np.cumsum(leaves) - leaves, np.cumsum(leaves - 1) - (leaves - 1)
    tree = np.arange(len(leaves))
    node = np.where(leaves > 1, 0, -1)
    side = np.zeros((len(leaves), len(row)), dtype=np.int8)  # 1: as in `row`, -1: as in `other`
    weights = _weights(min(len(row), int(leaves.max())))
    shares, score, other_score = np.zeros(len(row)), 0.0, 0.0
    while len(node):
        at_leaf = node < 0
        value = forest.leaf_value[first_leaf[tree[at_leaf]] + ~node[at_leaf]]
        of_row, of_other = side[at_leaf] > 0, side[at_leaf] < 0
        own, others = of_row.sum(axis=1), of_other.sum(axis=1)
        score += float(value[others == 0].sum())
        other_score += float(value[own == 0].sum())
        shares += (value * weights[own, others]) @ of_row - (value * weights[others, own]) @ of_other
        tree, node, side = tree[~at_leaf], node[~at_leaf], side[~at_leaf]
        split = first_split[tree] + node
        feature = forest.split_feature[split]
        chosen = side[np.arange(len(node)), feature]
        parts = (lefts[0][split] != lefts[1][split]) & (chosen == 0)
        as_other = np.flatnonzero(parts)
        left = np.where(chosen < 0, lefts[1][split], lefts[0][split])
        left = np.concatenate([left, lefts[1][split[as_other]]])
        split = np.concatenate([split, split[as_other]])
        side[parts, feature[parts]] = 1
        side = np.concatenate([side, side[as_other]])
        side[len(node) :][np.arange(len(as_other)), feature[as_other]] = -1
        tree = np.concatenate([tree, tree[as_other]])
        node = np.where(left, forest.left_child[split], forest.right_child[split])
    return shares, score, other_score


def _weights(most: int) -> Array:
    """Returns (p - 1)! q! / (p + q)! at [p, q], each up to `most`, and 0 for p = 0."""
    p, q = np.arange(1, most + 1)[:, None], np.arange(most + 1)
    return np.vstack([0.0 * q, np.cumprod(np.maximum(p - 1, 1) / (p + q), axis=0)])


def goes_left(forest: Forest, row: Array) -> _Mask:
    """Returns whether a row goes to the left child of each split, (splits,), as LightGBM decides."""
    values, kind = row[forest.split_feature], forest.decision_type
    values = np.where(np.isnan(values) & (kind & _MISSING != _NAN_IS_MISSING), 0.0, values)
    missing = np.isnan(values) | ((kind & _MISSING == _ZERO_IS_MISSING) & (np.abs(values) <= _ZERO))
    left: _Mask = np.where(missing, kind & _DEFAULT_LEFT != 0, values <= forest.threshold)
    for split in np.flatnonzero(kind & _CATEGORICAL):
        left[split] = _holds(
            forest.category_sets[int(forest.threshold[split])], row[forest.split_feature[split]]
        )
    return left


def _holds(words: npt.NDArray[np.uint32], value: float) -> bool:
    """Returns whether a set, in words of 32 categories, has this one."""
    if not 0 <= value < 32 * len(words):
        return False
    word, bit = divmod(int(value), 32)
    return bool(int(words[word]) >> bit & 1)
