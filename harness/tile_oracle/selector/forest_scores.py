"""Raw scores of any rows of features by native code: LightGBM's, bit for bit, and a hundred times as fast.

`ForestScores` scores rows that Python computed. Where native code computes the features, too, NativeSelector
is the faster one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.model.forest import Forest
from tile_oracle.selector import native_library

_ERROR_BYTES = 400
_BY_CLASS = 2
_ROWS_AT_ONCE = 8_192
"""Each row needs some 20 bytes for each feature."""


class FeatureRecord(ctypes.Structure):
    """`to_feature` of tile_oracle/scorer_c.h."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("n_classes", ctypes.c_uint32),
        ("class_of", ctypes.c_void_p),
        ("class_values", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class ForestScores:
    """Forests over the same features; the mean of their raw scores."""

    forests: tuple[Forest, ...]

    def __call__(self, features: Array) -> Array:
        """The mean raw score of each row, (rows,). features: (rows, features).

        Raises ModelError for another number of features, BuildError without the native library.
        """
        found = np.zeros(len(features))
        if not len(features):
            return found
        with read_forests(self.forests) as handles:
            for begin in range(0, len(features), _ROWS_AT_ONCE):
                some = slice(begin, begin + _ROWS_AT_ONCE)
                # In the order of the forests, as LightGBM's predictions are added.
                for scores in _scores(handles, len(self.forests), features[some]):
                    found[some] += scores
        return found / len(self.forests)


def _scores(handles: Any, forests: int, rows: Array) -> Array:
    """Returns the raw scores, (forests, rows). Every row is a class of its own in every feature."""
    library = scorer_library()
    count, width = rows.shape
    own = np.arange(count, dtype=np.uint32)
    columns = np.ascontiguousarray(rows.T, dtype=np.float64)
    record = FeatureRecord(_BY_CLASS, count, own.ctypes.data, None)
    records = (FeatureRecord * max(1, width))(*[record] * width)
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    scorer = library.to_scorer_make(handles, forests, count, records, width, b"best", error, _ERROR_BYTES)
    if not scorer:
        raise ModelError(error.value.decode(errors="replace"))
    try:
        first, stride = columns.ctypes.data, columns.strides[0]
        values = (ctypes.c_void_p * max(1, width))(*(first + stride * number for number in range(width)))
        constants, scores = np.zeros(width), np.empty((forests, count))
        if library.to_scorer_score(scorer, constants.ctypes.data, values, scores.ctypes.data):
            raise MemoryError("scoring")
    finally:
        library.to_scorer_free(scorer)
    return scores


@contextmanager
def read_forests(forests: Sequence[Forest]) -> Iterator[Any]:
    """Yields an array of the library's handles of forests. Raises ModelError for one that it refuses."""
    library = scorer_library()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    handles = (ctypes.c_void_p * max(1, len(forests)))()
    try:
        for number, forest in enumerate(forests):
            data = forest.to_bytes()
            handles[number] = library.to_forest_read(data, len(data), error, _ERROR_BYTES)
            if not handles[number]:
                raise ModelError(error.value.decode(errors="replace"))
        yield handles
    finally:
        for handle in handles:
            library.to_forest_free(handle)


@cache
def scorer_library() -> ctypes.CDLL:
    """Returns the native library with the functions of tile_oracle/scorer_c.h declared. Raises BuildError."""
    library = native_library.load()
    handle, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32
    functions = {
        "to_forest_read": (handle, (text, size, text, size)),
        "to_forest_free": (None, (handle,)),
        "to_scorer_make": (handle, (handle, number, number, handle, number, text, text, size)),
        "to_scorer_free": (None, (handle,)),
        "to_scorer_score": (ctypes.c_int, (handle, handle, handle, handle)),
        "to_scorer_n_distinct": (number, (handle,)),
        "to_scorer_reads": (ctypes.c_int, (handle, number)),
        "to_scorer_memory_bytes": (size, (handle,)),
        "to_scorer_isa": (text, (handle,)),
        "to_isa_available": (ctypes.c_int, (text,)),
    }
    native_library.declare(library, functions)
    return library
