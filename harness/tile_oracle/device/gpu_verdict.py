"""Turns the findings of GPU checks into results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tile_oracle.device.base import CheckResult
from tile_oracle.device.gpu_data import OperandSet
from tile_oracle.device.gpu_work import DeviceWork, Findings, Verdict, Within
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, decode

_RUNS_TO_SEE_FLAKINESS = 4


def beside(found: Findings) -> CheckResult | None:
    """Returns the result for a kernel that wrote outside its buffers, or None."""
    for name, damaged in (("output", found.beside_output), ("workspace", found.beside_workspace)):
        if damaged:
            return CheckResult("wrong", f"wrote {damaged:,} bytes outside its {name}", tainted=True)
    return None


def repeated(run: Callable[[], Findings]) -> Iterator[Findings]:
    """Lazily runs the kernel as often as needed to see that it is flaky."""
    return (run() for _ in range(_RUNS_TO_SEE_FLAKINESS))


def wrong_or_flaky(wrong: str, first: Verdict, again: Iterable[Findings]) -> CheckResult:
    """A wrong result is `flaky` if another run on the same data is right or wrong in a different way."""
    for found in again:
        failure = beside(found)
        if failure is not None:
            return failure
        if found.verdict != first:
            return CheckResult("flaky", f"different results from the same data: {wrong}")
    return CheckResult("wrong", wrong)


def _value(work: DeviceWork, problem: Problem, address: int, index: int) -> float:
    stored = np.frombuffer(work.value(problem, address, index), STORAGE[problem.result_dtype])
    return float(decode(stored, problem.result_dtype)[0])


def explain(work: DeviceWork, problem: Problem, checked: OperandSet, verdict: Verdict) -> str:
    """Returns how many values are wrong; index, value and exact value or bounds of the first one."""
    shape = problem.operand_shapes[-1]
    at = verdict.first or 0
    count = math.prod(shape)
    got = _value(work, problem, checked.out.address, at)
    text = f"got {got:g}"
    if isinstance(checked.expected, Within):
        place = checked.expected.place(at)
        if place is not None:
            low, high = (
                _value(work, problem, one, place) for one in (checked.expected.low, checked.expected.high)
            )
            text += f", right is {low:g} to {high:g}"
    elif checked.sample is None or count <= checked.sample:
        text += f", exact {_value(work, problem, checked.expected, at):g}"
    else:
        count = checked.sample
    where = ", ".join(str(int(i)) for i in np.unravel_index(at, shape))
    text = f"{verdict.wrong:,} of {count:,} values wrong, at ({where}) {text}"
    if verdict.unwritten:
        text += f"; left {verdict.unwritten:,} of {count:,} values unwritten"
    if verdict.nan:
        text += f"; {verdict.nan:,} of {count:,} values are NaN"
    return text
