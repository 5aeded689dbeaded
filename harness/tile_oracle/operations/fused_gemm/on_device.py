"""Fused products in a worker process: operands whose sums are exact, bounds of the epilogue, and calls.

docs/fused_gemm.md derives the sizes: sums, with the bias and D that are added, are integers times powers of
two that fp32 holds exactly in any order. So only an activation has an error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from scipy.special import erf, expit

from tile_oracle.device.bounded_rows import UNIT, Exact, Repeated, Rows, rounded_bounds
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.operations.bounded_worker import (
    BoundedWorker,
    half_of_depths,
    integers,
    launch_arguments,
    operand_a,
    operand_b,
    stored,
)
from tile_oracle.operations.fused_gemm.problem import FusedGemmProblem
from tile_oracle.problem.number_formats import Array, decode

_LARGEST = {"bf16": (255, 8), "fp16": (2047, 3)}
"""dtype -> largest integers of A and B. The far operands have full significands in B, and these in A:"""
_FAR = 8
_FAR_UNIT, _FAR_ROWS = 10, 8
"""Of the far operands, whose sums are multiples of 2^-10 times 2^0 to 2^8 for each row."""
_ADDED, _FAR_ADDED = (127, 5), (15, 2)
"""Largest integer, and negated power of two of its unit, of a bias and of D."""
_ACTIVATION_ERROR, _TANH_ERROR = 16 * UNIT, 2.0**-12
"""Of an activation in fp32, and more where a GPU's instruction computes tanh, as factors of |x|."""
_PERIODS, _BATCHES = (251, 127, 61, 31, 13, 7, 3), (31, 7, 3, 2)
_SAMPLE = 64
_MOST_PRODUCTS, _MOST_DECODED, _MOST_ROWS = 1 << 33, 1 << 28, 1 << 24
"""Of a reference on the host, for a GPU: products, values of B, values of A and C."""
_MOST_VALUES = 1 << 22
"""Larger operands repeat rows."""


_Args = launch_arguments("a b bias d out workspace", "batch M N K")


def activated(x: Exact, activation: str) -> tuple[Exact, Exact]:
    """Returns the activation of exact values, and the error that one in fp32 may have."""
    error = _ACTIVATION_ERROR * np.abs(x)
    if activation == "silu":
        return x * expit(x), error
    if activation == "gelu":
        return x * (1 + erf(x * np.sqrt(0.5))) / 2, error
    if activation == "gelu_tanh":
        tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
        return x * (1 + tanh) / 2, error + _TANH_ERROR * np.abs(x * tanh)
    return x, np.zeros_like(x)


class FusedGemmInWorker(BoundedWorker):
    """See OnDevice, OnGpu and BoundedRows."""

    def _powers(self, problem: FusedGemmProblem) -> tuple[int, int]:
        """Negated powers of two of A and B, with which sums have a standard deviation of about 2."""
        a, b = _LARGEST[problem.dtype]
        both = round(np.log2(a * b * np.sqrt(problem.K) / 6))
        return both // 2, both - both // 2

    def first(self, problem: FusedGemmProblem, random: np.random.Generator, rows: int, *, far: bool) -> Array:
        """Returns rows of A: uniform integers, or far ones."""
        most, half = (_FAR, half_of_depths(problem.K)) if far else (_LARGEST[problem.dtype][0], 0)
        values = operand_a(random, most, (rows, problem.K), half)
        powers = (
            integers(random, (0, _FAR_ROWS), (rows, 1)) - _FAR_UNIT // 2 if far else -self._powers(problem)[0]
        )
        return stored(values, problem.dtype, powers)

    def others(
        self, problem: FusedGemmProblem, random: np.random.Generator, rows: int | None, *, far: bool
    ) -> list[Repeated]:
        """Returns B, the bias and D; far: sums of products cancel."""
        p, height = problem, problem.batch * problem.M
        _, shape, *added, _ = p.operand_shapes
        batches = p.batch if rows is None else rows // p.M if rows % p.M == 0 else 1
        if far:
            made = [self._far_columns(p, random, batches)]
        else:
            _, most = _LARGEST[p.dtype]
            count = min(p.batch * shape[1], (_MOST_VALUES // shape[2]) | 1)
            values = integers(random, (-most, most), (count, shape[2]))
            made = [Repeated(stored(values, p.dtype, -self._powers(p)[1]), shape)]
        most, power = _FAR_ADDED if far else _ADDED
        for one in added:
            count = batches if len(one) == 2 else rows or min(height, (_MOST_VALUES // p.N) | 1)
            made.append(Repeated(stored(integers(random, (-most, most), (count, p.N)), p.dtype, -power), one))
        return made

    def _far_columns(self, problem: FusedGemmProblem, random: np.random.Generator, batches: int) -> Repeated:
        """B with the columns of the first `batches` products, in the memory order of the layout."""
        p, shape = problem, problem.operand_shapes[1]
        count = min(batches * p.N, (_MOST_VALUES // p.K) | 1)
        full, _ = _LARGEST[p.dtype]
        most = max(3, min(full, (1 << 24) // (_FAR * p.K)))
        values = operand_b(random, (most // 2 + 1, most), (count, p.K), half_of_depths(p.K))
        columns = stored(values, p.dtype, -(_FAR_UNIT - _FAR_UNIT // 2))
        if p.layout[1] == "c" and batches == p.batch:
            return Repeated(columns, shape)
        whole = columns[np.arange(batches * p.N) % count].reshape(batches, p.N, p.K)
        return Repeated(whole if p.layout[1] == "c" else np.ascontiguousarray(whole.swapaxes(1, 2)), shape)

    def bounds(
        self, problem: FusedGemmProblem, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the least and the largest right values of some rows; equal ones without an activation."""
        p, epilogue = problem, problem.parts
        b, *added = others
        height = b.shape[1]
        x = np.empty((len(rows), p.N))
        batches = rows // p.M
        for one in np.unique(batches).tolist():
            chosen = batches == one
            matrix = decode(b.rows(one * height, (one + 1) * height), p.dtype)
            a = decode(first[chosen], p.dtype)
            x[chosen] = a @ (matrix if p.layout[1] == "r" else matrix.T)
        rest = [decode(one.values, p.dtype).reshape(-1, p.N).astype(np.float64) for one in added]
        if epilogue.bias:
            bias = rest.pop(0)
            x += bias[batches % len(bias)]
        value, error = activated(x, epilogue.activation)
        if epilogue.last:
            (d,) = rest
            of_rows = d[rows % len(d)]
            value = value * of_rows if epilogue.last == "mul" else value + of_rows
            error = error * (np.abs(of_rows) if epilogue.last == "mul" else 1)
        return rounded_bounds(value, error, p.result_dtype)

    def period(self, problem: FusedGemmProblem) -> int:
        """Returns all rows if there is time for them; else those of some products of the batch, or a prime
        number of rows, so that a kernel that reads another product or row is seen."""
        p = problem

        def fits(rows: int) -> bool:
            products = rows * p.N * p.K
            decoded = -(-rows // p.M) * p.N * p.K
            few = rows * max(p.N, p.K) <= _MOST_ROWS
            return products <= _MOST_PRODUCTS and decoded <= _MOST_DECODED and few

        batches = (one * p.M for one in (p.batch, *_BATCHES) if one <= p.batch)
        return next((one for one in (*batches, *_PERIODS) if fits(one)), 1)

    def sample(self, problem: FusedGemmProblem) -> int:
        """Returns the number of rows whose values are computed for timed runs."""
        most = _MOST_DECODED if problem.batch > 1 else _MOST_PRODUCTS
        return max(1, min(_SAMPLE, most // (problem.N * problem.K)))

    def cpu_arguments(
        self, problem: FusedGemmProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """Returns the argument of `to_launch`."""
        a, b, *added = (one.address for one in operands)
        bias = added.pop(0) if problem.parts.bias else None
        d = added.pop(0) if problem.parts.last else None
        return _Args(a, b, bias, d, out.address, None, problem.batch, *problem.gemm_shape)


WORKER = FusedGemmInWorker()
