"""Forests scored by native code through tile_oracle/scorer_c.h, which only tests and benchmarks call.

One problem, all candidates: the sums of LightGBM's raw predictions. A scorer is constructed with the features
that differ between the candidates and the candidates that share values; scoring only reads values.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.model.model_text import Forest
from tile_oracle.selector import native_library

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.uint32]

ISAS = ("scalar", "neon", "avx2", "avx512")
"""Instruction sets with code. All of them give the same bits."""

_ERROR_BYTES = 400


class FeatureRecord(ctypes.Structure):
    """`to_feature` of tile_oracle/scorer_c.h."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("n_classes", ctypes.c_uint32),
        ("class_of", ctypes.c_void_p),
        ("class_values", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Constant:
    """A feature with one value for all candidates of a problem."""


@dataclass(frozen=True)
class PerKernel:
    """A feature that no problem changes: class_values[class_of[candidate]]."""

    class_of: Numbers
    class_values: Array


@dataclass(frozen=True)
class PerClass:
    """A feature whose value candidates of one class share, and every problem changes."""

    class_of: Numbers
    classes: int


FeatureSource = Constant | PerKernel | PerClass


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


def available_isas() -> tuple[str, ...]:
    """The instruction sets that this machine can run."""
    library = scorer_library()
    return tuple(isa for isa in ISAS if library.to_isa_available(isa.encode()))


class Scorer:
    """Forests over the same features and candidates. Any number of threads may use one."""

    def __init__(
        self, forests: Sequence[Forest], candidates: int, features: Sequence[FeatureSource], isa: str = "best"
    ) -> None:
        """`features` in the forests' order. `isa`: best (the environment's TILE_ORACLE_ISA, or what the
        processor has) or one of ISAS. Raises ModelError for what does not fit together."""
        self._library = scorer_library()
        self._address: int | None = None
        self.candidates, self.forests = candidates, len(forests)
        self._kinds = tuple(features)
        kept: list[Any] = []
        records = (FeatureRecord * max(1, len(features)))()
        for record, feature in zip(records, features, strict=False):
            if isinstance(feature, Constant):
                continue
            class_of = np.ascontiguousarray(feature.class_of, dtype=np.uint32)
            if class_of.shape != (candidates,):
                raise ModelError(f"a feature has {class_of.size} candidates, not {candidates}")
            kept.append(class_of)
            record.class_of = class_of.ctypes.data
            if isinstance(feature, PerKernel):
                values = np.ascontiguousarray(feature.class_values, dtype=np.float64)
                kept.append(values)
                record.kind, record.n_classes, record.class_values = 1, values.size, values.ctypes.data
            else:
                record.kind, record.n_classes = 2, feature.classes
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        with read_forests(forests) as handles:
            self._address = self._library.to_scorer_make(
                handles, len(forests), candidates, records, len(features), isa.encode(), error, _ERROR_BYTES
            )
        if not self._address:
            raise ModelError(error.value.decode(errors="replace"))

    def __del__(self) -> None:
        if getattr(self, "_address", None):
            self._library.to_scorer_free(self._address)

    def score(self, constants: Array, class_values: Mapping[int, Array]) -> Array:
        """Raw scores, (forests, candidates). `constants`: (features,), read where a feature is one;
        `class_values`: feature -> (classes,), for every PerClass feature."""
        given = np.ascontiguousarray(constants, dtype=np.float64)
        if given.shape != (len(self._kinds),):
            raise ModelError(f"{given.size} constants for {len(self._kinds)} features")
        pointers = (ctypes.c_void_p * max(1, len(self._kinds)))()
        kept = []
        for number, feature in enumerate(self._kinds):
            if isinstance(feature, PerClass):
                values = np.ascontiguousarray(class_values[number], dtype=np.float64)
                if values.shape != (feature.classes,):
                    raise ModelError(
                        f"feature {number} has {values.size} values for {feature.classes} classes"
                    )
                kept.append(values)
                pointers[number] = values.ctypes.data
        out = np.empty((self.forests, self.candidates))
        self.score_into(given.ctypes.data, pointers, out.ctypes.data)
        return out

    def score_into(self, constants: int, class_values: Any, out: int) -> None:
        """The same on the addresses of checked arrays, for callers for whom microseconds matter."""
        if self._library.to_scorer_score(self._address, constants, class_values, out):
            raise MemoryError("scoring")

    @property
    def distinct(self) -> int:
        """Candidates that the forests can tell apart; the others share their scores."""
        return int(self._library.to_scorer_n_distinct(self._address))

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return str(self._library.to_scorer_isa(self._address).decode())

    @property
    def memory_bytes(self) -> int:
        """What the scorer holds in native memory."""
        return int(self._library.to_scorer_memory_bytes(self._address))

    def reads(self, feature: int) -> bool:
        """Whether any tree uses a feature; unused features may have any value."""
        return bool(self._library.to_scorer_reads(self._address, feature))
