"""Converts the text of a LightGBM model to the binary format of the scoring engine.

Only what determines a raw score is kept, exactly:

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

import struct
import zlib
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from tile_oracle.model.model_text import read_model_text

_MAGIC = b"TOFOREST"
_VERSION = 1
_CATEGORICAL = 1


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
        """Reads a model's text. Raises ModelError like `read_model_text`."""
        read = read_model_text(text, where)
        threshold, decision = read.columns["threshold"], read.columns["decision_type"].astype(np.uint8)
        sets = [len(of_tree) for of_tree in read.category_sets]
        before = np.repeat(np.cumsum(sets, dtype=np.int64) - sets, read.leaves - 1)
        return cls(
            read.feature_names,
            read.leaves.astype(np.uint32),
            read.columns["split_feature"].astype(np.uint32),
            threshold + np.where(decision & _CATEGORICAL, before, 0),
            decision,
            read.columns["left_child"].astype(np.int32),
            read.columns["right_child"].astype(np.int32),
            read.columns["leaf_value"],
            tuple(chain.from_iterable(read.category_sets)),
        )

    def to_bytes(self) -> bytes:
        """Returns the engine's binary format; equal models give equal bytes."""
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
