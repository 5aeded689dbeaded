"""Python binding of a loaded selector file (tile_oracle/selector_c.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.selector import native_library

_ERROR_BYTES = 400
_NOT_A_PROBLEM = 1


@lru_cache(maxsize=8)
def _library(sources: Path | None) -> ctypes.CDLL:
    library = native_library.load() if sources is None else native_library.load_of(sources)
    pointer, size, number, status = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_int
    functions = {
        "read": (pointer, (ctypes.c_char_p, size, ctypes.c_char_p, size)),
        "free": (None, (pointer,)),
        "size": (number, (pointer,)),
        "name": (ctypes.c_char_p, (pointer, number)),
        "n_fields": (number, (pointer,)),
        "field": (ctypes.c_char_p, (pointer, number)),
        "pick": (status, (pointer, pointer, pointer)),
        "rank": (status, (pointer, pointer, number, pointer, pointer)),
        "log_times": (status, (pointer, pointer, pointer)),
        "tflops": (status, (pointer, pointer, pointer)),
        "tflops_among": (status, (pointer, pointer, pointer, number, pointer)),
        "memory_bytes": (size, (pointer,)),
    }
    native_library.declare(library, {f"to_selector_{name}": one for name, one in functions.items()})
    return library


class NativeSelector:
    """The kernels and the model of one selector file. A problem is given as its field values, in the file's
    order. sources: the folder whose C++ reads it, in place of the installed one's.

    Thread-safe. Raises ModelError for data that is not a selector; every method raises ModelError for values
    that are not a valid problem.
    """

    def __init__(self, data: bytes, sources: Path | None = None) -> None:
        self._library = _library(sources)
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._address = self._library.to_selector_read(data, len(data), error, _ERROR_BYTES)
        if not self._address:
            raise ModelError(error.value.decode(errors="replace"))
        self.size: int = self._library.to_selector_size(self._address)
        fields = self._library.to_selector_n_fields(self._address)
        self._array = ctypes.c_double * fields

    def __del__(self) -> None:
        if getattr(self, "_address", None):
            self._library.to_selector_free(self._address)

    @property
    def names(self) -> list[str]:
        """The kernels' names, in the order of their numbers."""
        return [self._library.to_selector_name(self._address, one).decode() for one in range(self.size)]

    @property
    def fields(self) -> list[str]:
        """The names of a problem's values, in their order."""
        return [
            self._library.to_selector_field(self._address, one).decode()
            for one in range(self._array._length_)
        ]

    @property
    def memory_bytes(self) -> int:
        """Native memory in use, in bytes."""
        return int(self._library.to_selector_memory_bytes(self._address))

    def pick(self, values: Sequence[float]) -> int:
        """Returns the index of the kernel with the least predicted time."""
        picked = ctypes.c_uint32()
        self._check(
            self._library.to_selector_pick(self._address, self._problem(values), ctypes.byref(picked))
        )
        return picked.value

    def rank(self, values: Sequence[float], k: int) -> tuple[npt.NDArray[np.uint32], Array]:
        """Indices and predicted TFLOPS of the `k` best kernels, (k,) each, best first; k from 0 to `size`."""
        order, tflops = np.empty(k, dtype=np.uint32), np.empty(k)
        if k:
            places = (order.ctypes.data, tflops.ctypes.data)
            self._check(self._library.to_selector_rank(self._address, self._problem(values), k, *places))
        return order, tflops

    def log_times(self, values: Sequence[float]) -> Array:
        """Returns predicted ln(latency in ms) of every kernel, (size,)."""
        found = np.empty(self.size)
        self._check(
            self._library.to_selector_log_times(self._address, self._problem(values), found.ctypes.data)
        )
        return found

    def tflops(self, values: Sequence[float]) -> Array:
        """Returns predicted TFLOPS of every kernel, (size,)."""
        found = np.empty(self.size)
        self._check(self._library.to_selector_tflops(self._address, self._problem(values), found.ctypes.data))
        return found

    def tflops_among(self, values: Sequence[float], among: npt.NDArray[np.uint32]) -> Array:
        """Returns predicted TFLOPS of the kernels of these indices, as if there were no others, (among,)."""
        found = np.empty(len(among))
        places = (among.ctypes.data, len(among), found.ctypes.data)
        self._check(self._library.to_selector_tflops_among(self._address, self._problem(values), *places))
        return found

    def _problem(self, values: Sequence[float]) -> Any:
        if len(values) != self._array._length_:
            raise ModelError(
                f"a problem of this selector has {self._array._length_} values, not {len(values)}"
            )
        return self._array(*values)

    @staticmethod
    def _check(status: int) -> None:
        if status == _NOT_A_PROBLEM:
            raise ModelError("features of the problem are not finite: it holds values out of range")
        if status:
            raise MemoryError
