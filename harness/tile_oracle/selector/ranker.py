"""The native ranker: `NativeRanker.load(folder, kernels).select(problem)`.

Its results are bit-identical to those of tile_oracle.model.predictor.Predictor. It does not need LightGBM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array
from tile_oracle.features.schemas import op_of_model
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import Kernel
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.model.predictor import check_problem
from tile_oracle.problem import Problem
from tile_oracle.selector import native_library
from tile_oracle.selector.selector_file import NativeModel, problem_fields, selector_bytes

# ---- Python binding of a loaded selector file (tile_oracle/selector_c.h) -------------------------

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


@dataclass(frozen=True, eq=False)
class NativeRanker:
    """A loaded model with its candidates. Thread-safe.

    Every method raises ModelError for a problem of another kind than that of the model and the kernels.
    """

    folder: Path
    spec: ModelSpec
    kernels: tuple[Kernel, ...]
    orders_only: bool
    """Whether predictions only order kernels within a problem."""
    _selector: NativeSelector | None = field(repr=False)
    _values_of: Callable[[Problem], tuple[int, ...]] = field(repr=False)

    @classmethod
    def load(
        cls, folder: Path | str, kernels: Sequence[Kernel], code: CodeTable | None = None
    ) -> NativeRanker:
        """Loads the model of a folder for these candidates, which are of one kind of problem. code: facts of
        the binaries at hand, for a model that uses them (Predictor.knowing).

        Raises ModelError if the folder cannot be read, for kernels of another kind than the model's, and for
        features that native code does not support (the message names them; Predictor supports them). Raises
        BuildError if the native library cannot be built.
        """
        model = NativeModel.load(folder, code)
        selector = NativeSelector(selector_bytes(model, kernels)) if kernels else None
        values_of = attrgetter(*problem_fields(op_of_model(model.spec.op_type)))
        return cls(model.folder, model.spec, tuple(kernels), model.ranker.orders_only, selector, values_of)

    @property
    def memory_bytes(self) -> int:
        """Native memory in use, in bytes."""
        return 0 if self._selector is None else self._selector.memory_bytes

    def select(self, problem: Problem) -> Kernel:
        """Returns the pick for a problem. Raises ModelError for an empty pool."""
        ranked = self.rank(problem, 1)
        if not ranked:
            raise ModelError(f"no kernel to choose from for {problem.id}")
        return ranked[0][0]

    def rank(self, problem: Problem, k: int | None = None) -> list[tuple[Kernel, float]]:
        """Returns the `k` best kernels (None: all) with their predicted TFLOPS, best first (judge.ranking).

        Native code sorts by ln(time), and equal times by their place in the pool: where the last of `k` has
        the TFLOPS of the next one, more are asked for, and then sorted.
        """
        values = self._values(problem)
        if self._selector is None or (k is not None and k < 1):
            return []
        most = len(self.kernels)
        wanted = most if k is None else min(k, most)
        count = min(wanted + 1, most)
        while True:
            numbers, speeds = self._selector.rank(values, count)
            tflops = speeds.tolist()
            if count == most or tflops[wanted - 1] > tflops[-1]:
                break
            count = min(4 * count, most)
        kernels = [self.kernels[number] for number in numbers.tolist()]
        if any(one == other for one, other in pairwise(tflops)):
            order = best_first(tflops, [kernel.name for kernel in kernels])
            kernels, tflops = [kernels[place] for place in order], sorted(tflops, reverse=True)
        return list(zip(kernels[:wanted], tflops, strict=False))

    def log_time(self, problem: Problem) -> Array:
        """Returns predicted ln(latency in ms) of every kernel, (kernels,)."""
        values = self._values(problem)
        return np.zeros(0) if self._selector is None else self._selector.log_times(values)

    def tflops(self, problem: Problem) -> Array:
        """Returns predicted TFLOPS of every kernel, (kernels,)."""
        values = self._values(problem)
        return np.zeros(0) if self._selector is None else self._selector.tflops(values)

    def tflops_among(self, problem: Problem, kernels: Sequence[Kernel]) -> Array:
        """Returns predicted TFLOPS of some of the kernels, as if there were no others, (kernels,)."""
        values = self._values(problem)
        if self._selector is None or not kernels:
            return np.zeros(0)
        return self._selector.tflops_among(
            values, np.array([self._place[k.name] for k in kernels], dtype=np.uint32)
        )

    def knows(self, kernels: Iterable[Kernel]) -> bool:
        """Returns whether all of these are among the candidates."""
        return all(kernel.name in self._place for kernel in kernels)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {kernel.name: place for place, kernel in enumerate(self.kernels)}

    def _values(self, problem: Problem) -> tuple[int, ...]:
        first = self.kernels[0] if self.kernels else None
        if first is None or first.kind != getattr(problem, "kind", None):
            check_problem(self.folder, self.spec, problem)
            if first is not None:
                raise ModelError(f"kernel {first.name} is not a candidate for {problem.id}")
        return self._values_of(problem)
