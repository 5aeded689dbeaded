"""Operands of a problem that are small integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.problem import Problem, gemm_shape

Integers = npt.NDArray[np.integer[Any]]


def integer_operands(problem: Problem, seed: int) -> tuple[Integers, Integers]:
    """Return both operands. Every partial sum of at most 2^24 of their products stays below 2^24."""
    generator, length = np.random.default_rng(seed), gemm_shape(problem)[2]
    most = next((a for a in (4, 3, 2) if a * a * length < 1 << 24), 1)
    first, second = (
        generator.integers(-most, most + 1, size=shape, dtype=np.int8) for shape in problem.operand_shapes[:2]
    )
    return first, second
