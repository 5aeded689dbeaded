"""What the check of an operation with error bounds gives a kernel, and which results it takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tile_oracle.device.bounded_rows import BoundedRows
from tile_oracle.problem.number_formats import Array

INSTRUCTION = 32
"""Depths that one of Hopper's fp8 instructions takes."""


def made(
    worker: BoundedRows, problem: Any, rows: int, *, far: bool, period: int | None = None
) -> tuple[list[Array], Array, Array]:
    """The operands of one of the two sets, and the least and largest right values of all rows. far: the set
    with numbers of many sizes. period: of the result's rows, if those of the first operand repeat."""
    random = np.random.default_rng(5)
    first = worker.first(problem, random, rows, far=far)
    others = worker.others(problem, random, period, far=far)
    with np.errstate(invalid="ignore"):
        low, high = worker.bounds(problem, first, others, np.arange(rows))
    return [first, *(one.whole() for one in others)], low, high


def cut(values: Array, ulp: Array) -> Array:
    return np.trunc(values / ulp) * ulp


def in_registers(a: Array, b: Array, bits: int = 14) -> Array:
    """a b^T as fp8 instructions with registers of so many bits add it up: terms are aligned to the largest,
    and cut off."""
    sums = np.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], INSTRUCTION):
        terms = a[:, None, k : k + INSTRUCTION] * b[None, :, k : k + INSTRUCTION]
        terms = np.concatenate([terms, sums[:, :, None]], axis=2)
        largest = np.abs(terms).max(axis=2)
        ulp = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1))) - (bits - 1))
        sums = cut(terms, ulp[:, :, None]).sum(axis=2)
        ulp = np.exp2(np.floor(np.log2(np.where(sums != 0, np.abs(sums), 1))) - (bits - 1))
        sums = cut(sums, ulp)
    return sums
