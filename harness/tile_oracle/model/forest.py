"""Converts the text of a LightGBM model to the binary format of the scoring engine.

The text is LightGBM's documented format, version 4: lines `key=value`, an empty line between sections, one
section per tree, ended by `end of trees`. Only what determines a raw score is kept, exactly:

    "TOFOREST", u32 version, crc32 of what follows the header, features, trees, splits, leaves,
        category sets, words of category sets
    f64 threshold[splits], leaf_value[leaves]
    u32 split_feature[splits], i32 left_child[splits], right_child[splits]
    u32 num_leaves[trees], words_of_set[category sets], words[...]
    u8 decision_type[splits]

little-endian. Children are LightGBM's: an inner node of the same tree, or ~leaf. The threshold of a
categorical split is the number of its category set.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.model.number_list import numbers_of

_MAGIC = b"TOFOREST"
_VERSION = 1
_CATEGORICAL = 1

_NUMBER = re.compile(r"-?[0-9]{1,9}")

_Whole = TypeVar("_Whole", np.uint8, np.uint32, np.int32)


@dataclass(frozen=True)
class Forest:
    """The trees of one model: LightGBM's arrays, concatenated over the trees."""

    feature_names: tuple[str, ...]
    num_leaves: npt.NDArray[np.uint32]
    """(trees,)"""
    split_feature: npt.NDArray[np.uint32]
    """(splits,), like the next four; a tree has one split fewer than leaves."""
    threshold: npt.NDArray[np.float64]
    decision_type: npt.NDArray[np.uint8]
    left_child: npt.NDArray[np.int32]
    right_child: npt.NDArray[np.int32]
    leaf_value: npt.NDArray[np.float64]
    """(leaves,)"""
    category_sets: tuple[npt.NDArray[np.uint32], ...]
    """Words of 32 categories."""

    @classmethod
    def from_text(cls, text: str, where: str = "the model") -> Forest:
        """Parses a model's text. Raises ModelError, which names `where`, for an invalid text, and for a model
        whose raw score is not a single sum of leaves (several classes, linear trees)."""
        return _read(text, where)

    def to_bytes(self) -> bytes:
        """The engine's binary format; equal models give equal bytes."""
        words = [np.asarray(words, dtype="<u4") for words in self.category_sets]
        body = b"".join(
            (
                self.threshold.astype("<f8").tobytes(),
                self.leaf_value.astype("<f8").tobytes(),
                self.split_feature.astype("<u4").tobytes(),
                self.left_child.astype("<i4").tobytes(),
                self.right_child.astype("<i4").tobytes(),
                self.num_leaves.astype("<u4").tobytes(),
                np.array([len(w) for w in words], dtype="<u4").tobytes(),
                *(w.tobytes() for w in words),
                self.decision_type.astype("u1").tobytes(),
            )
        )
        counts = (
            len(self.feature_names),
            len(self.num_leaves),
            len(self.split_feature),
            len(self.leaf_value),
            len(words),
            sum(map(len, words)),
        )
        return _MAGIC + struct.pack("<8I", _VERSION, zlib.crc32(body), *counts) + body


def _read(text: str, where: str) -> Forest:
    head, *sections = text.partition("\nend of trees")[0].split("\nTree=")
    header = _keys(head)
    if not head.startswith("tree") or "\nend of trees" not in text:
        raise ModelError(f"{where} is not a complete LightGBM model: save or copy it again")
    for key in ("num_class", "num_tree_per_iteration"):
        if header.get(key) != "1":
            raise ModelError(f"{where} has {key}={header.get(key)}: only models of one output can be scored")
    names = tuple(header.get("feature_names", "").split(" "))
    if len(names) != _number(header, "max_feature_idx", where) + 1:
        raise ModelError(f"{where} names {len(names)} features, but max_feature_idx gives another number")
    trees = [_keys(section) for section in sections]
    for number, tree in enumerate(trees):
        if tree.get("is_linear", "0") != "0":
            raise ModelError(f"{where}: tree {number} is linear: train with linear_tree=false")
    leaves = np.array([_number(tree, "num_leaves", where) for tree in trees], dtype=np.int64)
    if (leaves < 1).any():
        raise ModelError(f"{where}: tree {int(np.argmin(leaves))} has no leaves")
    splits = int((leaves - 1).sum())
    threshold = _column(trees, "threshold", splits, where)
    decision = _whole(trees, "decision_type", splits, np.uint8, where)
    sets: list[npt.NDArray[np.uint32]] = []
    first = 0
    for tree, count in zip(trees, leaves - 1, strict=True):
        if tree.get("num_cat", "0") != "0":
            of_tree = slice(first, first + int(count))
            categorical = (decision[of_tree] & _CATEGORICAL) != 0
            threshold[of_tree][categorical] += len(sets)
            sets.extend(_category_sets(tree, where))
        first += int(count)
    return Forest(
        names,
        leaves.astype(np.uint32),
        _whole(trees, "split_feature", splits, np.uint32, where),
        threshold,
        decision,
        _whole(trees, "left_child", splits, np.int32, where),
        _whole(trees, "right_child", splits, np.int32, where),
        _column(trees, "leaf_value", int(leaves.sum()), where),
        tuple(sets),
    )


def _keys(section: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in section.split("\n") if "=" in line)


def _number(keys: Mapping[str, str], key: str, where: str) -> int:
    value = keys.get(key, "")
    # Longer numbers fit in no array, and Python refuses to parse thousands of digits.
    if _NUMBER.fullmatch(value) is None:
        raise ModelError(f"{where} has no number {key}: save or copy the model again")
    return int(value)


def _column(trees: list[dict[str, str]], key: str, count: int, where: str) -> npt.NDArray[np.float64]:
    """One column of all trees. Doubles are exact: reals have 17 digits, integers are small."""
    joined = " ".join(value for tree in trees if (value := tree.get(key, "").strip()))
    try:
        values = numbers_of(joined)
    except ValueError:
        raise ModelError(
            f"{where}: {key} holds a value that is not a number: save or copy the model again"
        ) from None
    if len(values) != count:
        raise ModelError(f"{where}: {key} has {len(values)} values instead of {count}: copy it again")
    return values


def _whole(
    trees: list[dict[str, str]], key: str, count: int, dtype: type[_Whole], where: str
) -> npt.NDArray[_Whole]:
    """A column of integers."""
    values = _column(trees, key, count, where)
    bounds = np.iinfo(dtype)
    if not ((values == np.trunc(values)) & (values >= bounds.min) & (values <= bounds.max)).all():
        raise ModelError(f"{where}: {key} holds a value that is not an integer: save or copy the model again")
    return values.astype(dtype)


def _category_sets(tree: Mapping[str, str], where: str) -> list[npt.NDArray[np.uint32]]:
    try:
        bounds = [int(bound) for bound in tree["cat_boundaries"].split()]
        words = np.array([int(word) for word in tree["cat_threshold"].split()], dtype=np.uint32)
    except (KeyError, ValueError, OverflowError):
        raise ModelError(f"{where}: cat_boundaries or cat_threshold cannot be read: copy it again") from None
    if bounds[:1] != [0] or bounds[-1] != len(words) or bounds != sorted(bounds):
        raise ModelError(f"{where}: cat_boundaries do not match cat_threshold: copy it again")
    return [words[begin:end] for begin, end in pairwise(bounds)]
