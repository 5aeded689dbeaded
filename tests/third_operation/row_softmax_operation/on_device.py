"""Softmax in a worker process: data, the reference in fp64, and how a kernel is called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from row_softmax_operation.problem import SoftmaxProblem
from tile_oracle.device.cpu_data import CheckSet, CpuData, TimedSet
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


class SoftmaxData(CpuData):
    def __init__(self, problem: SoftmaxProblem, seed: int) -> None:
        self._problem, self._seed = problem, seed
        self.sets = [
            self._set("random rows", _random(problem, seed), flush=True),
            self._set("rows far from zero", _random(problem, seed + 1) * 20 + 1000, flush=False),
        ]

    def _set(self, name: str, values: Values, *, flush: bool) -> CheckSet:
        skew = 0 if flush else 4
        inputs = (holding(values, flush=flush, skew=skew),)
        out = GuardedBuffer(values.nbytes, flush=flush, skew=skew)
        compare = partial(mismatch, out.view(np.float32, values.shape), reference(values))
        where = "before a guard page" if flush else "skewed"
        return CheckSet(name, where, inputs, out, compare, int(values.size))

    def _timed_set(self) -> TimedSet:
        """Random rows, others for every run."""
        rounds = [_random(self._problem, self._seed + 2 + number) for number in range(_ROUNDS)]
        inputs = (holding(rounds[0], flush=False),)
        out = GuardedBuffer(rounds[0].nbytes, flush=False)
        turns = whole_turns(inputs, [(one,) for one in rounds], out, 4, self._seed)

        def compare() -> str | None:
            values = rounds[turns.kept_states[0]]
            return mismatch(turns.kept.view(np.float32).reshape(values.shape), reference(values))

        return TimedSet(inputs, out, turns, compare)


def _random(problem: SoftmaxProblem, seed: int) -> Values:
    shape = (problem.rows, problem.columns)
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(3)


def cpu_data(problem: SoftmaxProblem, seed: int) -> SoftmaxData:
    return SoftmaxData(problem, seed)


def cpu_arguments(problem: SoftmaxProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer) -> _Args:
    return _Args(operands[0].address, out.address, 0, problem.rows, problem.columns)
