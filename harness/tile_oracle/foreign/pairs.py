"""Measurements of other tools, one object each: readers yield them, the importer makes records of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tile_oracle.errors import HarnessError, KernelError, ProblemError, first_line
from tile_oracle.kernel import Kernel, kernel_from_row, parse_kernel_name
from tile_oracle.operation import operation_named, operation_of_columns
from tile_oracle.problem import Problem, problem_from_id

KERNEL_WORDS = ("kernel", "kernel_name")
PROBLEM_WORDS = ("problem", "problem_id")


@dataclass(frozen=True)
class ForeignRow:
    """One pair. samples_ms: its timings, empty unless the status is ok. spread: interquartile range of the
    samples / their median; None: from samples_ms. count: how many samples, None: those given. time: as text.
    cache: "cold" or "warm", None if unknown."""

    problem: Problem
    kernel: Kernel
    status: str
    samples_ms: Sequence[float] = ()
    detail: str = ""
    spread: float | None = None
    count: int | None = None
    time: str | None = None
    cache: str | None = None

    def as_columns(self) -> dict[str, Any]:
        """The columns of a record that depend on the pair and its timings."""
        found: dict[str, Any] = {
            **self.problem.as_row(),
            **self.kernel.as_row(),
            "problem": self.problem.id,
            "kernel": self.kernel.name,
            "status": self.status,
            "detail": self.detail,
            "cache": self.cache,
        }
        if self.status == "ok":
            low, median, high = np.quantile(self.samples_ms, [0.25, 0.5, 0.75])
            spread = self.spread if self.spread is not None else (high - low) / median
            found |= {
                "latency_ms": float(median),
                "latency_min_ms": float(min(self.samples_ms)),
                "spread": float(spread) if self.spread is not None or len(self.samples_ms) > 1 else None,
                "samples": self.count or len(self.samples_ms),
                "tflops": self.problem.tflops(float(median)),
            }
        return found


@dataclass
class ForeignFile:
    """The rows of a file, and (reason, example) of those that were refused."""

    rows: list[ForeignRow] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def add(self, stated: Mapping[str, Any], status: str, samples_ms: Sequence[Any], **further: Any) -> None:
        """Adds the measurement of what `stated` names (`pair_of`), or refuses it."""
        try:
            problem, kernel = pair_of(stated)
        except (HarnessError, TypeError, ValueError) as error:
            what = "problem" if isinstance(error, ProblemError) else "kernel"
            self.refused.append((f"{what} cannot be read", first_line(error)))
            return
        times = [float(one) for one in samples_ms if _is_time(one)] if status == "ok" else []
        if status == "ok" and (not times or len(times) < len(samples_ms)):
            self.refused.append(("no positive latency", f"{kernel.name} on {problem.id}"))
            return
        self.rows.append(ForeignRow(problem, kernel, status, times, **further))


def pair_of(stated: Mapping[str, Any]) -> tuple[Problem, Kernel]:
    """The problem and kernel that names and values state.

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
    return is_number and math.isfinite(value) and value > 0
