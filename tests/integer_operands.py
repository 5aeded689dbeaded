"""Operands of a problem that are integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.problem import Problem, gemm_shape

Integers = npt.NDArray[np.integer[Any]]

_WIDE = 1 << 12
"""Least magnitude of the larger integers of fp32 problems, as far as the other operand allows."""


def integer_operands(problem: Problem, seed: int) -> tuple[Integers, Integers]:
    """Returns both operands. Every partial sum of at most 2^24 of their products stays below 2^24.

    One operand of an fp32 problem needs more than the upper half of its elements, by the seed the first or
    the second.
    """
    generator, length = np.random.default_rng(seed), gemm_shape(problem)[2]
    wide = problem.dtype == "fp32"
    least = next((a for a in (4, 3, 2) if a * (_WIDE if wide else a) * length < 1 << 24), 1)
    most = min((1 << 15) - 1, max(1, ((1 << 24) - 1) // (least * length))) if wide else least
    limits = (most, least) if seed % 2 else (least, most)
    first, second = (
        generator.integers(-limit, limit + 1, size=shape, dtype=np.int16)
        for limit, shape in zip(limits, problem.operand_shapes[:2], strict=True)
    )
    return first, second
