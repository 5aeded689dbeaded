"""Slices: classes of problems (such as depthwise or 3D), by which sets and results are broken down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem

if TYPE_CHECKING:
    import pandas as pd

SLICE_COLUMNS = (
    *("slice", "problems", "covered", "mean_percent", "p10_percent", "min_percent"),
    "oracle_over_median",
)


def slices_of(problem: Problem) -> tuple[str, ...]:
    """Returns the slices of a problem, in its operation's order. A problem may have several slices, or
    none."""
    slices = operation_named(problem.op).slices
    return tuple(name for name, belongs in slices.items() if belongs(problem))


def slice_names(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Returns all slices of the operations of these problems, in the operations' order."""
    ops = dict.fromkeys(problem.op for problem in problems)
    return tuple(dict.fromkeys(name for op in ops for name in operation_named(op).slices))


def classes_of(problems: Sequence[Problem]) -> dict[str, list[bool]]:
    """Which of the problems each slice has."""
    found = [slices_of(problem) for problem in problems]
    return {name: [name in slices for slices in found] for name in slice_names(problems)}


def slice_table(selection: pd.DataFrame, classes: Mapping[str, Sequence[bool]]) -> pd.DataFrame:
    """Returns the efficiency of each class of problems; classes may overlap.

    classes: name -> which rows of the selection. Columns: `slice`, `problems`, `covered`, `mean_percent`,
    `p10_percent`, `min_percent`, `oracle_over_median` (median TFLOPS ratio). Empty classes have no row.
    """
    import numpy as np  # `tile-oracle problems` need not wait for pandas
    import pandas as pd

    percent = 100.0 * selection["efficiency"].to_numpy(dtype=np.float64, na_value=np.nan)
    over_median = selection["oracle_tflops"] / selection["median_tflops"]
    rows = []
    for name, belongs in classes.items():
        mask = np.asarray(belongs, dtype=bool)
        values = percent[mask & ~np.isnan(percent)]
        figures = (values.mean(), np.percentile(values, 10), values.min()) if len(values) else (None,) * 3
        if mask.any():
            rows.append((name, int(mask.sum()), len(values), *figures, over_median[mask].median()))
    return pd.DataFrame(rows, columns=list(SLICE_COLUMNS))
