"""A model and its candidates in native code: `NativeRanker.load(folder, kernels).select(problem)`.

The same answers as harness.heuristic.predictor.Predictor, bit for bit, without LightGBM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import ModelError
from harness.heuristic.code_table import CodeTable
from harness.heuristic.features import Array
from harness.heuristic.model_folder import ModelSpec
from harness.heuristic.predictor import check_problem
from harness.heuristic.schemas import op_of_model
from harness.kernel import Kernel
from harness.problem import Problem
from harness.selector import native_library
from harness.selector.selector_file import NativeModel, problem_fields, selector_bytes

_ERROR_BYTES = 400
_NOT_A_PROBLEM = 1
_DOUBLES = ctypes.POINTER(ctypes.c_double)


@dataclass(frozen=True)
class _Functions:
    """The C interface of tile_oracle/selector_c.h."""

    read: Any
    free: Any
    pick: Any
    rank: Any
    log_times: Any
    tflops: Any
    memory_bytes: Any


def _functions() -> _Functions:
    library = native_library.load()
    handle, problem = ctypes.c_void_p, ctypes.c_void_p
    result = ctypes.c_void_p

    def declared(name: str, result_type: Any, *arguments: Any) -> Any:
        function = getattr(library, f"to_selector_{name}")
        function.restype, function.argtypes = result_type, arguments
        return function

    return _Functions(
        declared("read", handle, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t),
        declared("free", None, handle),
        declared("pick", ctypes.c_int, handle, problem, result),
        declared("rank", ctypes.c_int, handle, problem, ctypes.c_uint32, result, result),
        declared("log_times", ctypes.c_int, handle, problem, result),
        declared("tflops", ctypes.c_int, handle, problem, result),
        declared("memory_bytes", ctypes.c_size_t, handle),
    )


class _Handle:
    """A selector in native memory, freed with this object."""

    def __init__(self, data: bytes) -> None:
        self.functions = _functions()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self.address = self.functions.read(data, len(data), error, _ERROR_BYTES)
        if not self.address:
            raise ModelError(error.value.decode(errors="replace"))

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self.functions.free(self.address)


@dataclass(frozen=True, eq=False)
class NativeRanker:
    """A loaded model with its candidates. Any number of threads may use one.

    Every method raises ModelError for a problem of another kind than the model or the kernels are for.
    """

    folder: Path
    spec: ModelSpec
    kernels: tuple[Kernel, ...]
    _handle: _Handle | None = field(repr=False)
    _values_of: Callable[[Problem], tuple[int, ...]] = field(repr=False)

    @classmethod
    def load(
        cls, folder: Path | str, kernels: Sequence[Kernel], code: CodeTable | None = None
    ) -> NativeRanker:
        """The model in a folder for these candidates, which are of one kind of problem. `code`: figures of
        further kernels' binaries, for a model that reads such (Predictor.knowing).

        Raises ModelError when the folder cannot be read, for kernels that the model was not trained for, and
        for what native code cannot do: the message names it, and Predictor.load can still do it. Raises
        BuildError or TargetError where the native library cannot be built.
        """
        model = NativeModel.load(folder, code)
        handle = _Handle(selector_bytes(model, kernels)) if kernels else None
        values_of = attrgetter(*problem_fields(op_of_model(model.spec.op_type)))
        return cls(model.folder, model.spec, tuple(kernels), handle, values_of)

    @property
    def memory_bytes(self) -> int:
        """Native memory that it holds."""
        return 0 if self._handle is None else int(self._handle.functions.memory_bytes(self._handle.address))

    def select(self, problem: Problem) -> Kernel:
        """The pick. Raises ModelError for an empty pool."""
        values = self._values(problem)
        if self._handle is None:
            raise ModelError(f"no kernel to choose from for {problem.id}")
        picked = ctypes.c_uint32()
        self._check(self._handle.functions.pick(self._handle.address, values, ctypes.byref(picked)), problem)
        return self.kernels[picked.value]

    def rank(self, problem: Problem, k: int | None = None) -> list[tuple[Kernel, float]]:
        """The `k` best kernels (all for None) with their predicted TFLOPS, best first; equal predictions keep
        the pool's order."""
        values = self._values(problem)
        count = len(self.kernels) if k is None else max(0, min(k, len(self.kernels)))
        if self._handle is None or count == 0:
            return []
        order, tflops = np.empty(count, dtype=np.uint32), np.empty(count)
        rank = self._handle.functions.rank
        status = rank(self._handle.address, values, count, order.ctypes.data, tflops.ctypes.data)
        self._check(status, problem)
        kernels = self.kernels
        ranked = zip(order.tolist(), tflops.tolist(), strict=True)
        return [(kernels[number], speed) for number, speed in ranked]

    def log_time(self, problem: Problem) -> Array:
        """Predicted ln(latency in ms) of every kernel, (kernels,)."""
        return self._of_all(problem, "log_times")

    def tflops(self, problem: Problem) -> Array:
        """Predicted TFLOPS of every kernel, (kernels,)."""
        return self._of_all(problem, "tflops")

    def _of_all(self, problem: Problem, what: str) -> Array:
        values = self._values(problem)
        found = np.empty(len(self.kernels))
        if self._handle is not None:
            function = getattr(self._handle.functions, what)
            self._check(function(self._handle.address, values, found.ctypes.data), problem)
        return found

    def _values(self, problem: Problem) -> Any:
        first = self.kernels[0] if self.kernels else None
        if first is None or first.kind != getattr(problem, "kind", None):
            check_problem(self.folder, self.spec, problem)
            if first is not None:
                raise ModelError(f"kernel {first.name} is no candidate for {problem.id}")
        values = self._values_of(problem)
        return (ctypes.c_double * len(values))(*values)

    def _check(self, status: int, problem: Problem) -> None:
        if status == _NOT_A_PROBLEM:
            raise ModelError(f"features of {problem.id} are not finite: it holds values out of range")
        if status:
            raise MemoryError
