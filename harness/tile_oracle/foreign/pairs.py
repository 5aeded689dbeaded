"""Rows of readers that find the pair themselves: kernel and problem by name, figures in our units."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tile_oracle.errors import HarnessError, KernelError, ProblemError, first_line
from tile_oracle.foreign.contract import Field
from tile_oracle.foreign.dialect import Dialect, dialect_of
from tile_oracle.foreign.entry import Entry
from tile_oracle.foreign.summary import plain_name
from tile_oracle.kernel import Kernel, kernel_from_row, parse_kernel_name
from tile_oracle.operation import operation_named, operation_of_columns
from tile_oracle.problem import Problem, problem_from_id

KERNEL_WORDS = ("kernel", "kernel_name")
PROBLEM_WORDS = ("problem", "problem_id")

_FILLED: Mapping[str, Field] = {
    name: Field(name)
    for name in (
        *("kernel", "problem", "status", "detail", "latency_ms", "latency_min_ms", "latency_max_ms"),
        *("spread", "samples", "ended", "cache"),
    )
}


@dataclass
class PairRows:
    """The rows of a file, and (reason, example) of those that were refused. ops: each row's operation. own:
    the fields of the format."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    own: Mapping[str, Field] = field(default_factory=dict)

    def add(self, stated: Mapping[str, Any], samples_ms: Sequence[Any], **figures: Any) -> None:
        """Adds the measurement of what `stated` names (`pair_of`), or refuses it. figures: columns of a row;
        the timings give those that are not there."""
        try:
            problem, kernel = pair_of(stated)
        except (HarnessError, TypeError, ValueError) as error:
            what = "problem" if isinstance(error, ProblemError) else "kernel"
            self.refused.append((f"{what} cannot be read", first_line(error)))
            return
        self.ops.append(kernel.op)
        times = [float(one) if _is_time(one) else math.nan for one in samples_ms]
        named = next(
            (stated[word] for word in KERNEL_WORDS if isinstance(stated.get(word), str)), kernel.name
        )
        row = {"kernel": named, "problem": problem.id, **_figures(times), **figures}
        sizes = operation_named(kernel.op).free_fields
        for name, value in stated.items():
            word = str(name).strip().lower()
            another = name not in sizes and word in map(str.lower, sizes)  # a parameter n, but a problem's N
            if value is not None and not another and word not in (*row, *KERNEL_WORDS, *PROBLEM_WORDS):
                row[word] = str(value)
        self.rows.append({plain_name(k): plain_name(v) if isinstance(v, str) else v for k, v in row.items()})

    def take(self, entries: Iterable[Entry]) -> PairRows:
        """Adds the rows of a file that name a kernel, and refuses the others. Returns itself."""
        for one in entries:
            why = one.why or next((f"{what}: more than the operation" for what in one.more), "")
            why = why or ("" if one.kernel else one.why_no_kernel)
            if one.problem is None or why:
                self.refused.append((why, one.text))
            else:
                pair = {"kernel": one.kernel, "problem": one.problem.id}
                self.add({**one.stated, **pair}, one.times_ms, **one.figures)
        return self

    def of_one_operation(self) -> Dialect | None:
        """Refuses all rows but those of the operation that most are of. Returns what their names mean; None
        without rows."""
        if not self.rows:
            return None
        op = Counter(self.ops).most_common(1)[0][0]
        both = list(zip(self.ops, self.rows, strict=True))
        self.rows = [row for one, row in both if one == op]
        self.refused += [
            (f"of {one}, where most rows are of {op}", row["kernel"]) for one, row in both if one != op
        ]
        dialect = dialect_of(op)
        return replace(dialect, own={**dialect.own, **self.own, **_FILLED})


def _figures(times_ms: Sequence[float]) -> dict[str, Any]:
    if not times_ms:
        return {}
    low, median, high = np.quantile(times_ms, [0.25, 0.5, 0.75])
    found = {"latency_ms": float(median), "latency_min_ms": min(times_ms), "samples": len(times_ms)}
    return found | ({"spread": float((high - low) / median)} if len(times_ms) > 1 else {})


def pair_of(stated: Mapping[str, Any]) -> tuple[Problem, Kernel]:
    """Returns the problem and kernel that names and values state.

    The kernel is one of our names (`kernel`, `kernel_name`), or all of its fields. The problem is an id
    (`problem`), or its dimensions. Raises KernelError, ProblemError.
    """
    name = next((stated[word] for word in KERNEL_WORDS if isinstance(stated.get(word), str)), None)
    if name is not None:
        kernel = parse_kernel_name(name)
    else:
        kernel = kernel_from_row(stated, str(stated.get("op") or operation_of_columns(list(stated)).name))
    identity = next((stated[word] for word in PROBLEM_WORDS if isinstance(stated.get(word), str)), None)
    if identity is not None:
        problem = problem_from_id(identity)
    else:
        problem = operation_named(kernel.op).problem.from_row({**stated, **kernel.kind.words})
    if not kernel.matches(problem):
        raise KernelError(f"{kernel.name} is not a kernel for {problem.id}")
    return problem, kernel


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf
