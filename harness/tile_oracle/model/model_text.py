"""Checks and reads the text of a LightGBM model, before LightGBM or native code do.

LightGBM trusts a model's text: an index out of range, a child that is its own parent or a wrong `tree_sizes`
makes it read out of bounds, loop forever or abort the process. `read_model_text` accepts only what LightGBM
writes for models with one output and without linear trees (formats v3 and v4): known lines, each once, lists
of the length that the tree states, indices in range, and a proper tree.
"""

from __future__ import annotations

import re
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array

_INT = r"-?[0-9]{1,10}"
_REAL = r"-?[0-9]{1,25}(?:\.[0-9]{1,25})?(?:e[+-]?[0-9]{1,3})?"
_LOOSE = rf"(?:{_REAL}|-?inf|-?nan)"
_TOKEN = r"[^\s\x00-\x1f\x7f=]+"


def _list(item: str) -> str:
    return rf"(?:{item}(?: {item})*)?"


_OBJECTIVES = (
    *("regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie"),
    *("lambdarank", "rank_xendcg", "custom"),
)
"""Objectives with one output, a quantity or an order: others would overflow the buffer of results."""
_OF_LIKELIHOODS = ("binary", "cross_entropy", "cross_entropy_lambda")
_LINKED = re.compile(r"objective=(?:poisson|gamma|tweedie|[a-z_0-9]+(?: \S+)* sqrt)\b")
"""Objectives whose prediction is not the sum of the leaves, but its exponential or its signed square."""
_AVERAGED = "average_output"
"""The line of a random forest, whose prediction is the mean of its trees."""

_HEADER = {
    "version": "v[34]",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": "[0-9]{1,6}",
    _AVERAGED: "",
    "max_feature_idx": "[0-9]{1,6}",
    "objective": rf"(?:{'|'.join(_OBJECTIVES)})(?: sqrt| [a-z_]+:{_REAL})*",
    "feature_names": _list(_TOKEN),
    "monotone_constraints": _list("-?[01]"),
    "feature_infos": _list(rf"(?:none|\[{_LOOSE}:{_LOOSE}\]|{_INT}(?::{_INT})*)"),
    "tree_sizes": _list("[0-9]{1,9}"),
}
_OF_TREE = {"num_leaves": "[0-9]{1,7}", "num_cat": "[0-9]{1,7}", "is_linear": "0", "shrinkage": _REAL}
_WHOLE, _FIGURE, _STATISTIC = b"0123456789 -", b"0123456789 -+.e", b"0123456789 -+.einfa"
_LISTS = {
    "split_feature": _WHOLE,
    "split_gain": _STATISTIC,
    "threshold": _FIGURE + b"inf",  # of a split between missing values and all others
    "decision_type": _WHOLE,
    "left_child": _WHOLE,
    "right_child": _WHOLE,
    "leaf_value": _FIGURE,
    "leaf_weight": _STATISTIC,
    "leaf_count": _WHOLE,
    "internal_value": _STATISTIC,
    "internal_weight": _STATISTIC,
    "internal_count": _WHOLE,
    "cat_boundaries": _WHOLE,
    "cat_threshold": _WHOLE,
}
"""The lists of a tree, and the characters of their numbers."""

_STATISTICS = (
    "split_gain", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count"
)  # fmt: skip
"""Not used for scores: their numbers may be infinite and are not checked one by one."""

_OPTIONAL = {"objective", "monotone_constraints", _AVERAGED}
_OPTIONAL_OF_TREE = {*_STATISTICS, "cat_boundaries", "cat_threshold", "is_linear", "shrinkage"}
_PER_LEAF = tuple(name for name in _LISTS if name.startswith("leaf_"))
_PER_SPLIT = tuple(name for name in _LISTS if not name.startswith(("leaf_", "cat_")))

_HEADER_LINES = {key: re.compile(value) for key, value in _HEADER.items()}
_TREE_LINES = {key: re.compile(value) for key, value in _OF_TREE.items()} | dict.fromkeys(_LISTS)
_END = b"\nend of trees\n"
_CATEGORICAL = 1
_LARGEST_DECISION = 11
"""Categorical, default left, and one of three kinds of missing value in the next two bits."""
_SHOWN = 60


@dataclass(frozen=True)
class ModelText:
    """The trees of a text that is safe to load."""

    feature_names: tuple[str, ...]
    leaves: npt.NDArray[np.int64]
    """Leaves of each tree; it has one split fewer."""
    columns: Mapping[str, Array]
    """LightGBM's lists, concatenated over the trees; statistics are left out."""
    category_sets: tuple[tuple[npt.NDArray[np.uint32], ...], ...]
    """The sets of each tree, as words of 32 categories."""


def read_model_text(text: str, where: str = "the model") -> ModelText:
    """Returns the trees. Raises ModelError, one line that names `where`, for a text that is not safe."""
    data = text.encode("utf-8", "surrogatepass")
    if not data.startswith(b"tree\n") or _END not in data:
        raise ModelError(f"{where} is not a complete LightGBM model: save or copy it again")
    header_end = data.find(b"\n\n")
    if header_end < 0:
        raise _wrong(where, "its header has no end")
    _check_kind(text, where)
    header = _keys(data[5:header_end], _HEADER_LINES, _OPTIONAL, where, "the header")
    features = int(header["max_feature_idx"]) + 1
    for name in ("feature_names", "feature_infos", "monotone_constraints"):
        if name in header and _count(header[name]) != features:
            raise _wrong(where, f"{name} has {_count(header[name])} entries for {features} features")
    sizes = [int(size) for size in header["tree_sizes"].split()]
    begin = header_end + 1  # the newline before the first tree is counted with the tree
    begin += len(data[begin:]) - len(data[begin:].lstrip(b"\n"))
    trees = [
        _keys(section, _TREE_LINES, _OPTIONAL_OF_TREE, where, f"tree {number}")
        for number, section in enumerate(_sections(data, begin, sizes, where))
    ]
    columns = {key: _column(trees, key, characters, where) for key, characters in _LISTS.items()}
    sets = tuple(_category_sets(tree, number, where) for number, tree in enumerate(trees))
    leaves = np.array([int(tree["num_leaves"]) for tree in trees], dtype=np.int64)
    if trees:
        _check_trees(columns, leaves, np.array([len(one) for one in sets]), features, where)
    if not data[begin + sum(sizes) :].startswith(_END[1:]):
        raise _wrong(where, "tree_sizes leaves out trees")
    return ModelText(tuple(header["feature_names"].split(" ")), leaves, columns, sets)


def without_footer(text: str) -> str:
    """Returns the text without what follows the trees: importances, parameters and the categories of pandas,
    which say nothing about predictions."""
    end = _END.decode()
    return text[: text.find(end) + len(end)] if end in text else text


def why_not_a_sum(text: str) -> str:
    """Returns why a model does not predict the sum of its leaves, "" if it does."""
    header = text.partition("\n\n")[0]
    linked = re.search(rf"^{_LINKED.pattern}.*", header, re.MULTILINE)
    if linked is not None:
        return f"it was trained with {linked[0]}, whose predictions are no sums of leaves"
    return "it is a random forest, the mean of its trees" if f"\n{_AVERAGED}\n" in header else ""


def _check_kind(text: str, where: str) -> None:
    """Raises ModelError for models that LightGBM may well have written, and that predict nothing of use."""
    header = dict(line.partition("=")[::2] for line in text.partition("\n\n")[0].split("\n"))
    objective, count = header.get("objective", "").partition(" ")[0], header.get("num_class", "1")
    if count != "1" or header.get("num_tree_per_iteration", "1") != "1":
        raise ModelError(f"{where} has several outputs (num_class={count}): train a regression")
    if objective in _OF_LIKELIHOODS:
        raise ModelError(f"{where} predicts a likelihood (objective={objective}): train a regression")
    if "\nis_linear=1\n" in text:
        raise ModelError(f"{where} has linear trees, which are not read: train with linear_tree=false")


def _sections(data: bytes, begin: int, sizes: Sequence[int], where: str) -> Iterator[bytes]:
    """Yields the trees, split by `tree_sizes` as LightGBM does."""
    for number, size in enumerate(sizes):
        section = data[begin : begin + size]
        title = b"Tree=%d\n" % number
        if not section.startswith(title) or not section.endswith(b"\n"):
            raise _wrong(where, f"tree_sizes does not say where tree {number} is")
        yield section[len(title) :].rstrip(b"\n")
        begin += size


def _keys(
    lines: bytes, known: Mapping[str, re.Pattern[str] | None], optional: set[str], where: str, part: str
) -> dict[str, str]:
    """Returns the lines `key=value` of a part: known keys, each once, with values that match their
    patterns."""
    try:
        text = lines.decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(where, f"{part} is not UTF-8 text") from None
    found: dict[str, str] = {}
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        if bool(equals) == (key == _AVERAGED) or key not in known or key in found:
            again = " twice" if key in found else ""
            raise _wrong(where, f"{part} has the line {line[:_SHOWN]!r}{again}")
        pattern = known[key]
        if pattern is not None and pattern.fullmatch(value) is None:
            raise _wrong(where, f"{key} of {part} is {value[:_SHOWN]!r}")
        found[key] = value
    for key in known:
        if key not in found and key not in optional:
            raise _wrong(where, f"{part} has no {key}")
    return found


def _check_trees(
    columns: Mapping[str, Array],
    leaves: npt.NDArray[np.int64],
    sets: npt.NDArray[np.int64],
    features: int,
    where: str,
) -> None:
    """Raises ModelError unless every list makes proper trees. leaves, sets: of each tree."""
    splits = leaves - 1
    tree_of_split = np.repeat(np.arange(len(leaves)), splits)
    own = np.arange(len(tree_of_split)) - np.repeat(np.cumsum(splits) - splits, splits)
    splits_here, leaves_here = splits[tree_of_split], leaves[tree_of_split]

    def refuse(bad: npt.NDArray[np.bool_], what: str, tree_of: npt.NDArray[np.int64]) -> None:
        if bad.any():
            raise _wrong(where, f"tree {int(tree_of[int(np.argmax(bad))])} has {what}")

    refuse(columns["split_feature"] >= features, "a split of a missing feature", tree_of_split)
    refuse(columns["split_feature"] < 0, "a split of a missing feature", tree_of_split)
    decision = columns["decision_type"]
    refuse((decision < 0) | (decision > _LARGEST_DECISION), "an unknown decision_type", tree_of_split)
    threshold = columns["threshold"]
    refuse(np.isnan(threshold), "a threshold that is no number", tree_of_split)
    categorical = (decision.astype(np.int64) & _CATEGORICAL) != 0
    whole = (threshold == np.trunc(threshold)) & (threshold >= 0) & (threshold < sets[tree_of_split])
    refuse(categorical & ~whole, "a categorical split without its set of categories", tree_of_split)
    refuse(
        ~np.isfinite(columns["leaf_value"]),
        "a leaf_value that is no number",
        np.repeat(np.arange(len(leaves)), leaves),
    )
    # A child is a later split or ~leaf, and each is the child of exactly one split: then there is exactly one
    # path from the root to every leaf.
    inner_seen = np.zeros(len(own) + len(leaves), dtype=np.int64)
    leaf_seen = np.zeros(int(leaves.sum()), dtype=np.int64)
    first_split, first_leaf = np.cumsum(splits) - splits, np.cumsum(leaves) - leaves
    for name in ("left_child", "right_child"):
        child = columns[name].astype(np.int64)
        inner = child >= 0
        refuse(inner & ((child <= own) | (child >= splits_here)), f"a wrong {name}", tree_of_split)
        refuse(~inner & (~child >= leaves_here), f"a wrong {name}", tree_of_split)
        np.add.at(inner_seen, (child + first_split[tree_of_split])[inner], 1)
        np.add.at(leaf_seen, (~child + first_leaf[tree_of_split])[~inner], 1)
    refuse(
        (inner_seen[: len(own)] != 1) & (own > 0), "a split that is not the child of one split", tree_of_split
    )
    tree_of_leaf = np.repeat(np.arange(len(leaves)), leaves)
    refuse(
        (leaf_seen != 1) & (leaves[tree_of_leaf] > 1),
        "a leaf that is not the child of one split",
        tree_of_leaf,
    )


def _category_sets(tree: Mapping[str, str], number: int, where: str) -> tuple[npt.NDArray[np.uint32], ...]:
    """Returns the sets of categories. Raises ModelError unless every list is as long as the tree needs."""
    leaves, sets = int(tree["num_leaves"]), int(tree["num_cat"])
    if leaves < 1:
        raise _wrong(where, f"tree {number} has no leaves")
    for names, wanted in ((_PER_SPLIT, leaves - 1), (_PER_LEAF, leaves)):
        for name in names:
            # In some versions a tree of one leaf has no leaf_weight.
            if name in tree and (have := _count(tree[name])) != wanted and not (leaves == 1 and have == 0):
                raise _wrong(where, f"{name} of tree {number} has {have} values where {wanted} belong")
    if not tree["leaf_value"]:
        raise _wrong(where, f"leaf_value of tree {number} has no value")
    if sets == 0:
        if tree.get("cat_boundaries") or tree.get("cat_threshold"):
            raise _wrong(where, f"tree {number} has categories, and num_cat says that it has none")
        return ()
    bounds = [int(bound) for bound in tree.get("cat_boundaries", "").split()]
    words = [int(word) for word in tree.get("cat_threshold", "").split()]
    if len(bounds) != sets + 1 or bounds[0] != 0 or bounds[-1] != len(words):
        raise _wrong(where, f"cat_boundaries of tree {number} do not fit num_cat and cat_threshold")
    if any(begin >= end for begin, end in pairwise(bounds)) or min(words) < 0:
        raise _wrong(where, f"cat_boundaries or cat_threshold of tree {number} cannot be right")
    return tuple(np.array(words[begin:end], dtype=np.uint32) for begin, end in pairwise(bounds))


def _column(
    trees: Sequence[Mapping[str, str]], key: str, characters: bytes, where: str
) -> npt.NDArray[np.float64]:
    """Returns a list of all trees, concatenated; integers within 32 bits. For statistics only the characters
    are checked."""
    lists = [value for tree in trees if (value := tree.get(key))]
    joined = " ".join(lists)
    try:
        if joined.encode().translate(None, characters) or "  " in joined or joined != joined.strip():
            raise ValueError
        values = numbers_of("" if key in _STATISTICS else joined)
    except ValueError:
        raise _wrong(where, f"{key} of a tree holds an invalid number") from None
    if characters is _WHOLE and (np.abs(values) >= (2**32 if key == "cat_threshold" else 2**31)).any():
        raise _wrong(where, f"{key} of a tree holds a number that is too large")
    return values


def numbers_of(text: str) -> Array:
    """Returns the numbers of a list that spaces separate. Numpy's own parser is five times as fast as
    Python's, and exact, too. Raises ValueError for anything else in the text."""
    if not text:
        return np.zeros(0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error", DeprecationWarning
        )  # older numpy only warns where it stopped in the text
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            raise ValueError("no list of numbers") from None


def _count(value: str) -> int:
    return value.count(" ") + 1 if value else 0


def _wrong(where: str, what: str) -> ModelError:
    return ModelError(f"{where} is not a model that LightGBM wrote: {what}; save or copy it again")


# ---- Converts the text of a LightGBM model to the binary format of the scoring engine ------------
# Only what determines a raw score is kept, exactly:
#
#     "TOFOREST", u32 version, crc32 of what follows the header, features, trees, splits, leaves,
#         category sets, words of category sets
#     f64 threshold[splits], leaf_value[leaves]
#     u32 split_feature[splits], i32 left_child[splits], right_child[splits]
#     u32 num_leaves[trees], words_of_set[category sets], words[...]
#     u8 decision_type[splits]
#
# little-endian. Children are LightGBM's: an inner node of the same tree, or ~leaf. The threshold of a
# categorical split is the number of its category set.

_MAGIC = b"TOFOREST"
_VERSION = 1


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
