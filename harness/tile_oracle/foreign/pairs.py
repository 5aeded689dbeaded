"""Rows of other programs that name both kernel and problem, as a table with figures in our units."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.foreign.contract import Field
from tile_oracle.foreign.dialect import Dialect, dialect_of, of_another
from tile_oracle.foreign.entry import KERNEL_WORDS, PROBLEM_WORDS, Entry
from tile_oracle.foreign.summary import ImportSummary, plain_name
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem

_FILLED: Mapping[str, Field] = {
    name: Field(name)
    for name in (
        *("kernel", "problem", "status", "detail", "latency_ms", "latency_min_ms", "latency_max_ms"),
        *("spread", "samples", "ended", "cache"),
    )
}


def read_pairs(
    entries: Iterable[Entry], own: Mapping[str, Field], summary: ImportSummary, op: str = ""
) -> tuple[pd.DataFrame, Dialect] | None:
    """Returns the rows that name a kernel, of an operation or of that which most are of, and what their names
    mean; None if there are none. The others are refused. own: the fields of the format."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in entries:
        why = one.why or next((f"{what}: more than the operation" for what in one.more), "")
        why = why or ("" if one.kernel else one.why_no_kernel)
        if one.problem is None or why:
            summary.refuse(why, one.text)
        else:
            rows[one.problem.op].append(_row(one, one.problem))
    most_first = sorted(rows, key=lambda name: -len(rows[name]))
    op = op or next(iter(most_first), "")
    for other in (name for name in most_first if name != op):
        summary.refuse(of_another(other), rows[other][0]["kernel"], len(rows[other]))
    if op not in rows:
        return None
    dialect = dialect_of(op)
    return pd.DataFrame(rows[op]), replace(dialect, own={**dialect.own, **own, **_FILLED})


def _row(one: Entry, problem: Problem) -> dict[str, Any]:
    sizes = operation_named(problem.op).free_fields
    times = [float(time) if _is_time(time) else math.nan for time in one.times_ms]
    row = {"kernel": one.kernel, "problem": problem.id, **_figures(times), **one.figures}
    for name, value in one.stated.items():
        word = name.strip().lower()
        another = name not in sizes and word in map(str.lower, sizes)  # a parameter n, but a problem's N
        if not another and word not in (*row, *KERNEL_WORDS, *PROBLEM_WORDS):
            row[word] = value
    return {plain_name(k): plain_name(v) if isinstance(v, str) else v for k, v in row.items()}


def _figures(times_ms: Sequence[float]) -> dict[str, Any]:
    if not times_ms:
        return {}
    low, median, high = np.quantile(times_ms, [0.25, 0.5, 0.75])
    found = {"latency_ms": float(median), "latency_min_ms": min(times_ms), "samples": len(times_ms)}
    return found | ({"spread": float((high - low) / median)} if len(times_ms) > 1 else {})


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf
