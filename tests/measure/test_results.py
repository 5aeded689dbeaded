"""What a run has of a problem, and what of it is left to measure."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.measure.simulated_engine import KERNELS, PROBLEMS, result
from tile_oracle.compiling.binary import BuildResult
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.results import Results
from tile_oracle.measure.row import row_of
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.twins import copy_of
from tile_oracle.problem import problem_from_id
from tile_oracle.record.schema import ROUND_FINAL, ROUND_SWEEP

PROBLEM = problem_from_id(PROBLEMS[0])
FAST, NEAR, SLOW, FAR, TWIN = KERNELS[:5]
MS = {FAST: 1.0, NEAR: 1.05, SLOW: 1.5, FAR: 2.5}
NOTHING = Results(SweepSettings())


def measured(kernel: Kernel, round_: int = ROUND_SWEEP, status: str = "ok") -> Measurement:
    return result(PROBLEM, kernel, round_, MS.get(kernel, 1.0), status)


def results(*measurements: Measurement) -> Results:
    book = Results(SweepSettings())
    for one in measurements:
        book.take(one)
    return book


class Rows:
    def __init__(self, *measurements: Measurement) -> None:
        self.rows: list[dict[str, Any]] = [one.as_row() for one in measurements]

    def known(self, problem_id: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["problem"] == problem_id]


def test_results_of_other_sessions_are_resumed_and_those_of_lost_devices_are_not() -> None:
    lost, failed = measured(NEAR, status="device_lost"), Measurement(PROBLEM, SLOW, "crash", "signal 11")
    known = [measured(FAST), failed, measured(FAST, ROUND_FINAL)]
    book = Results(SweepSettings(), Rows(*known, lost))
    assert book.missing(PROBLEM.id, (FAST, NEAR)) == [FAST, NEAR]
    book.resume(PROBLEM)
    assert book.missing(PROBLEM.id, (FAST, NEAR)) == [NEAR]
    assert book.of(PROBLEM.id) == [replace(one, resumed=True) for one in known]


def test_what_this_session_has_measured_is_not_replaced_by_a_row() -> None:
    own = replace(measured(FAST), sample_ms=(1.0,))
    book = Results(SweepSettings(), Rows(measured(FAST)))
    book.take(own)
    book.resume(PROBLEM)
    assert book.find(PROBLEM, FAST) is own


def test_leaders_are_left_until_each_has_been_measured_again_unless_alone() -> None:
    swept = [measured(FAST), measured(NEAR), measured(SLOW)]
    assert not NOTHING.leaders_left(PROBLEM.id)
    assert results(*swept).leaders_left(PROBLEM.id)
    assert results(*swept, measured(FAST, ROUND_FINAL)).leaders_left(PROBLEM.id)
    again = [measured(FAST, ROUND_FINAL), measured(NEAR, ROUND_FINAL)]
    assert not results(*swept, *again).leaders_left(PROBLEM.id)
    assert not results(measured(FAST)).leaders_left(PROBLEM.id)
    assert results(measured(FAST, status="noisy")).leaders_left(PROBLEM.id)


@pytest.mark.parametrize(("pick", "left"), [(FAST, False), (SLOW, True), (FAR, False)])
def test_a_pick_that_is_not_far_behind_is_measured_again(pick: Kernel, left: bool) -> None:
    again = [measured(FAST, ROUND_FINAL), measured(NEAR, ROUND_FINAL)]
    book = results(*map(measured, MS), *again)
    assert book.leaders_left(PROBLEM.id, (pick,)) is left


def test_copies_count_as_the_kernel_that_was_measured() -> None:
    again = [measured(FAST, ROUND_FINAL), measured(NEAR, ROUND_FINAL)]
    known = [measured(FAST), measured(NEAR), copy_of(measured(FAST), TWIN), *again]
    assert results(*known).leaders_left(PROBLEM.id)
    assert not results(*known, copy_of(again[0], TWIN)).leaders_left(PROBLEM.id)
    book = results(*map(measured, (FAST, NEAR, SLOW)), copy_of(measured(SLOW), TWIN), *again)
    assert book.leaders_left(PROBLEM.id, (TWIN,))
    book.take(measured(SLOW, ROUND_FINAL))
    book.take(copy_of(measured(SLOW, ROUND_FINAL), TWIN))
    assert not book.leaders_left(PROBLEM.id, (TWIN,))


def test_a_row_names_the_toolchain_where_a_build_has_ended() -> None:
    waiting, failed, tried, unneeded = (Future[BuildResult]() for _ in range(4))
    failed.set_exception(BuildError("no compiler"))
    tried.set_result(BuildResult(FAST, "build_error", None, "", 0.1, False, failed_with="clang 22"))
    unneeded.set_result(BuildResult(FAST, "build_error", None, "", 0.0, False))
    for future, toolchain in ((waiting, None), (failed, None), (tried, "clang 22"), (unneeded, None)):
        source = SimpleNamespace(implementation="native")
        target: Any = SimpleNamespace(
            name="cpu", arch="cpu", owner=lambda _, s=source: s, build=lambda _, f=future: f
        )
        crash = Measurement(PROBLEM, FAST, "crash")
        row = row_of(crash, target, SweepSettings(cold_cache=True), None)
        assert (row.get("toolchain"), row["device"], row["cache"]) == (toolchain, "", "cold")
        assert "source_hash" not in row
