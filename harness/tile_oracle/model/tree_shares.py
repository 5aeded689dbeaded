"""What each feature adds to the score of a row, from the trees alone: SHAP values without LightGBM.

The values are those of Lundberg, Erion and Lee, Consistent Individualized Feature Attribution for Tree
Ensembles (2018), which LightGBM's pred_contrib gives, too. The share of feature i in a leaf of value v is

    v (o_i - z_i) times the integral over t from 0 to 1 of the product over j != i of (t o_j + (1 - t) z_j)

where j are the features on the way to the leaf, o_j is 1 where the row goes that way at all splits of j, else
0, and z_j is the share of the training rows that do. The integrand is a polynomial, so a few nodes of Gauss
and Legendre give it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.model.forest import Forest

_Ints = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
_Words = npt.NDArray[np.uint64]

_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING_IS_ZERO, _MISSING_IS_NAN = 1, 2
_ZERO = 1e-35
_ROWS_OF_A_WORD = 64
_ROWS_AT_ONCE = 8
"""So many that what is computed of them stays in the caches."""


def explainable(forest: Forest) -> bool:
    """Whether `ScoreShares` can explain it: it knows its training rows and has no categorical split."""
    has_rows = len(forest.leaf_rows) == len(forest.leaf_value) and bool((forest.leaf_rows > 0).all())
    return has_rows and not forest.category_sets


@dataclass(frozen=True)
class _Leaves:
    """Leaves with the same number of features on their ways. leaf: their numbers, (leaves,). feature, z:
    (leaves, features). step: place of each feature's first step in the order of `_Ways.split`."""

    leaf: _Ints
    feature: _Ints
    z: Array
    slot: _Ints


class ScoreShares:
    """The ways to all leaves of a forest, for the shares of many rows. Raises ModelError for a forest that is
    not `explainable`."""

    def __init__(self, forest: Forest) -> None:
        if not explainable(forest):
            raise ModelError("the model's file has no numbers of training rows, or categorical splits")
        self._forest = forest
        leaf, split, left, part = _steps(forest)
        feature = forest.split_feature.astype(np.int64)[split]
        order = np.lexsort((feature, leaf))
        leaf, split, feature = leaf[order], split[order], feature[order]
        self._split, self._left = split, left[order]
        first = np.ones(len(leaf), dtype=bool)
        first[1:] = (leaf[1:] != leaf[:-1]) | (feature[1:] != feature[:-1])
        self._slots = np.flatnonzero(first)
        """The first step of each slot: a feature on the way to a leaf."""
        z = np.multiply.reduceat(part[order], self._slots) if len(leaf) else np.zeros(0)
        self._groups = list(_by_length(leaf[self._slots], feature[self._slots], z))

    def differences(self, first: Array, second: Array) -> tuple[Array, Array, Array]:
        """For rows of features (rows, features): the shares of the second less those of the first, (rows,
        features), and the scores of the first and of the second, (rows,)."""
        shares = np.zeros(first.shape)
        alone = self._forest.leaf_value[np.cumsum(self._forest.num_leaves) - 1][self._forest.num_leaves == 1]
        scores = np.full((2, len(first)), alone.sum())
        for begin in range(0, len(first), _ROWS_OF_A_WORD):
            some = slice(begin, begin + _ROWS_OF_A_WORD)
            self._add(first[some], second[some], shares[some], scores[:, some])
        return shares, scores[0], scores[1]

    def _add(self, first: Array, second: Array, shares: Array, scores: Array) -> None:
        """Adds the shares in all leaves in which the rows differ, and the scores."""
        follows = self._follows(first), self._follows(second)
        for group in self._groups:
            value = self._forest.leaf_value[group.leaf]
            ways = [follow[group.slot] for follow in follows]
            reached = [np.bitwise_and.reduce(way, axis=1) for way in ways]
            differ = np.bitwise_or.reduce(ways[0] ^ ways[1], axis=1)
            for begin in range(0, len(first), _ROWS_AT_ONCE):
                numbers = np.arange(begin, min(begin + _ROWS_AT_ONCE, len(first)), dtype=np.uint64)
                some = slice(begin, begin + len(numbers))
                for of_row, leaves in zip(scores, reached, strict=True):
                    of_row[some] += _bits(leaves, numbers[:, None]) @ value
                row, place = np.nonzero(_bits(differ, numbers[:, None]))
                z = group.z[place]
                found = np.zeros(z.shape)
                for sign, way in zip((-1.0, 1.0), ways, strict=True):
                    o = _bits(way[place], numbers[row, None]).astype(np.float64)
                    found += sign * (o - z) * _integrals(o, z)
                found *= value[place, None]
                part = shares[some]
                at = row[:, None] * part.shape[1] + group.feature[place]
                part += np.bincount(at.ravel(), found.ravel(), part.size).reshape(part.shape)

    def _follows(self, rows: Array) -> _Words:
        """Which rows go the way of each slot, (slots,): bit i is row i."""
        if not len(self._slots):
            return np.zeros(0, dtype=np.uint64)
        left = np.zeros(len(self._forest.threshold), dtype=np.uint64)
        for number, goes in enumerate(_goes_left(self._forest, rows)):
            left |= goes.astype(np.uint64) << np.uint64(number)
        along = np.where(self._left, left[self._split], ~left[self._split])
        return np.asarray(np.bitwise_and.reduceat(along, self._slots))


def _bits(words: _Words, numbers: _Words) -> _Mask:
    """Whether bit `numbers` of each word is set."""
    return np.asarray((words >> numbers) & np.uint64(1) != 0)


def _integrals(o: Array, z: Array) -> Array:
    """The integral of the product over all other features, (ways, features)."""
    nodes, weights = _nodes((o.shape[1] + 1) // 2)
    # Features first: numpy multiplies long rows, not many short ones.
    apart, z = np.ascontiguousarray((o - z).T), np.ascontiguousarray(z.T)
    total = np.zeros(z.shape)
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        factors = z + t * apart
        total += weight * factors.prod(axis=0) / factors
    return total.T


@cache
def _nodes(count: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre, from -1 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return np.asarray(nodes), np.asarray(weights)


def _steps(forest: Forest) -> tuple[_Ints, _Ints, _Mask, Array]:
    """Every step from a root to a leaf: the leaf, the split, whether it goes left there, and the share of the
    split's training rows that go there."""
    leaves = forest.num_leaves.astype(np.int64)
    tree = np.repeat(np.arange(len(leaves)), leaves - 1)
    first_split = np.cumsum(leaves - 1) - (leaves - 1)
    first_leaf = np.cumsum(leaves) - leaves
    splits, count = len(tree), len(forest.leaf_value)
    # Nodes are numbered: the splits, then the leaves.
    above = np.full(splits + count, -1, dtype=np.int64)
    is_left = np.zeros(splits + count, dtype=bool)
    for child, side in ((forest.left_child, True), (forest.right_child, False)):
        below = child.astype(np.int64)
        node = np.where(below >= 0, below + first_split[tree], splits + ~below + first_leaf[tree])
        above[node] = np.arange(splits)
        is_left[node] = side
    rows = np.concatenate([forest.split_rows, forest.leaf_rows])
    leaf, node = np.arange(count), splits + np.arange(count)
    found: list[tuple[_Ints, _Ints, _Mask, Array]] = []
    while True:
        inside = above[node] >= 0
        leaf, node = leaf[inside], node[inside]
        if not len(node):
            break
        split = above[node]
        found.append((leaf, split, is_left[node], rows[node] / rows[split]))
        node = split
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0)
    one, two, three, four = (np.concatenate(column) for column in zip(*found, strict=True))
    return one, two, three, four


def _by_length(leaf: _Ints, feature: _Ints, z: Array) -> Iterator[_Leaves]:
    """The leaves of the slots, by the number of slots."""
    numbers, starts, lengths = np.unique(leaf, return_index=True, return_counts=True)
    for length in np.unique(lengths):
        chosen = lengths == length
        slot = starts[chosen][:, None] + np.arange(length)
        yield _Leaves(numbers[chosen], feature[slot], z[slot], slot)


def _goes_left(forest: Forest, rows: Array) -> _Mask:
    """Whether each row goes left at each split, (rows, splits)."""
    values = rows[:, forest.split_feature]
    missing = forest.decision_type >> 2 & 3
    is_nan = np.isnan(values)
    values = np.where(is_nan & (missing != _MISSING_IS_NAN), 0.0, values)
    absent = is_nan & (missing == _MISSING_IS_NAN)
    absent |= (missing == _MISSING_IS_ZERO) & (np.abs(values) <= _ZERO)
    default = (forest.decision_type & _DEFAULT_LEFT) != 0
    return np.asarray(np.where(absent, default, values <= forest.threshold))
