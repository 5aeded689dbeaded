"""Columns of problem x kernel pairs, the inputs of feature formulas.

A table of pairs maps a column's name (a field of the problem or of the kernel) to an array with one value per
pair. Records already have this form; `pair_columns` makes such a table from objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

Column = npt.NDArray[Any]
Columns = Mapping[str, Any]


def field_columns(items: Sequence[Problem] | Sequence[Kernel]) -> dict[str, Column]:
    """Returns one column per field of the problems or kernels, in their order.

    Kernels of several sources have different fields; only those that all of them have are columns.
    """
    rows = [item.as_row() for item in items]
    names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    return {name: _column([row[name] for row in rows]) for name in names}


def pair_columns(problems: Sequence[Problem], kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Columns of every problem with every kernel, all kernels of the first problem first.

    The length is len(problems) x len(kernels). The column `kernel` holds the kernels' names. A field that
    both have (direction, dtype, ndim) is taken from the problem; candidates have the same value.
    """
    return own_pair_columns(problems, [kernels] * len(problems))


def own_pair_columns(problems: Sequence[Problem], pools: Sequence[Sequence[Kernel]]) -> dict[str, Column]:
    """Columns of every problem with each kernel of its own pool, in their order. Otherwise like
    `pair_columns`."""
    kernels = {kernel.name: kernel for pool in pools for kernel in pool}
    number = {name: place for place, name in enumerate(kernels)}
    of_row = np.array([number[kernel.name] for pool in pools for kernel in pool], dtype=np.int64)
    problem_of_row = np.repeat(np.arange(len(problems)), [len(pool) for pool in pools])
    of_kernels = {**field_columns(list(kernels.values())), "kernel": _column(list(kernels))}
    table = {name: column[of_row] for name, column in of_kernels.items()}
    table |= {name: column[problem_of_row] for name, column in field_columns(problems).items()}
    return table


def shared_fields(items: Sequence[Problem] | Sequence[Kernel]) -> frozenset[str]:
    """Returns the fields that all of these problems or kernels have: the names of `field_columns`."""
    return frozenset.intersection(*(frozenset(item.as_row()) for item in items)) if items else frozenset()


def _column(values: list[Any]) -> Column:
    if values and isinstance(values[0], str):
        return np.array(values, dtype=object)
    if values and isinstance(values[0], bool):
        return np.array(values, dtype=bool)
    return np.array(values, dtype=np.int64)
