"""Softmax in a worker process: data, the reference in fp64, and how a kernel is called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from row_softmax_operation.problem import SoftmaxProblem
from tile_oracle.device.guarded_memory import GuardedBuffer, holding
from tile_oracle.device.stray_values import unwritten
from tile_oracle.device.turns import whole_turns

Values = npt.NDArray[np.float32]

_TOLERANCE = 1e-5
"""Relative. A kernel's fp32 exp and sums are within 3e-6 of the reference."""
_ROUNDS = 4


class _Args(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("in0", "out", "workspace")),
        *((name, ctypes.c_int64) for name in ("rows", "columns")),
    )


def reference(values: Values) -> npt.NDArray[np.float64]:
    shifted = np.exp(values.astype(np.float64) - values.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def mismatch(out: Values, wanted: npt.NDArray[np.float64]) -> str | None:
    missing = unwritten(out)
    if missing:
        return missing
    wrong = ~(np.abs(out - wanted) <= _TOLERANCE * wanted + 1e-30)  # NaN is wrong
    if not wrong.any():
        return None
    row, column = np.argwhere(wrong)[0]
    return f"{wrong.sum():,} of {out.size:,} values wrong, at ({row}, {column}) got {out[row, column]:g}"


@dataclass(frozen=True)
class SoftmaxCheck:
    name: str
    where: str
    inputs: tuple[GuardedBuffer]
    out: GuardedBuffer
    values: Values
    kind: str = "full"

    @property
    def count(self) -> int:
        return int(self.values.size)

    def mismatch(self) -> str | None:
        return mismatch(self.out.view(np.float32, self.values.shape), reference(self.values))


class SoftmaxTimed:
    """Random rows, others for every run."""

    def __init__(self, problem: SoftmaxProblem, seed: int) -> None:
        self.problem = problem
        self._rounds = [_random(problem, seed + number) for number in range(_ROUNDS)]
        self.inputs = (holding(self._rounds[0], flush=False),)
        self.out = GuardedBuffer(self._rounds[0].nbytes, flush=False)
        self.turns = whole_turns(self.inputs, [(one,) for one in self._rounds], self.out, 4, seed)

    def mismatch(self) -> str | None:
        values = self._rounds[self.turns.kept_states[0]]
        return mismatch(self.turns.kept.view(np.float32).reshape(values.shape), reference(values))


class SoftmaxData:
    def __init__(self, problem: SoftmaxProblem, seed: int) -> None:
        self._problem, self._seed = problem, seed
        self.sets = [
            self._set("random rows", _random(problem, seed), flush=True),
            self._set("rows far from zero", _random(problem, seed + 1) * 20 + 1000, flush=False),
        ]
        self._timed: SoftmaxTimed | None = None

    def _set(self, name: str, values: Values, *, flush: bool) -> SoftmaxCheck:
        skew = 0 if flush else 4
        inputs = (holding(values, flush=flush, skew=skew),)
        out = GuardedBuffer(values.nbytes, flush=flush, skew=skew)
        return SoftmaxCheck(name, "before a guard page" if flush else "skewed", inputs, out, values)

    @property
    def timed(self) -> SoftmaxTimed:
        if self._timed is None:
            self._timed = SoftmaxTimed(self._problem, self._seed + 2)
        return self._timed

    def inputs(self) -> list[tuple[int, int]]:
        return [(one.inputs[0].address, one.inputs[0].size) for one in self.sets]


def _random(problem: SoftmaxProblem, seed: int) -> Values:
    shape = (problem.rows, problem.columns)
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(3)


def cpu_data(problem: SoftmaxProblem, seed: int) -> SoftmaxData:
    return SoftmaxData(problem, seed)


def cpu_arguments(problem: SoftmaxProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer) -> _Args:
    return _Args(operands[0].address, out.address, 0, problem.rows, problem.columns)
