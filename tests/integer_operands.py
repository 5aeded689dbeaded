"""Operands of a problem that are integers, as the checks of devices use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.reference import integer_range
from tile_oracle.problem import Problem

Integers = npt.NDArray[np.integer[Any]]


def integer_operands(problem: Problem, seed: int) -> tuple[Integers, Integers]:
    """Both operands as integers. Every partial sum of their products stays below 2^24."""
    generator = np.random.default_rng(seed)
    limits = integer_range(problem)
    first, second = (
        generator.integers(-most, most + 1, size=shape, dtype=np.int8 if most < 1 << 7 else np.int16)
        for most, shape in zip((limits.first, limits.second), problem.operand_shapes[:2], strict=True)
    )
    if limits.kept < 1:
        first *= generator.random(first.shape, dtype=np.float32) < limits.kept
    return first, second
