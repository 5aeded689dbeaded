"""Which xdist worker gets which tests, with xdist's own controller and simulated workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.session.simulated_xdist import SimulatedXdist
from tile_oracle.session.pair_id import pair_of
from tile_oracle.session.scheduler import ProblemScheduling

KERNEL = "16x16x64_compv{}_intrawave_w1x1x1_wt4x16x1"


def problem(number: int) -> str:
    return f"forward-fp32-n{number}-c8-k8-i6x6-f3x3"


def pairs(counts: Sequence[int]) -> list[str]:
    """The tests of problems 1, 2, ..., with these numbers of kernels."""
    return [
        f"tile_oracle::test_kernel[{problem(number)}-{KERNEL.format(kernel)}]"
        for number, kernels in enumerate(counts, 1)
        for kernel in range(kernels)
    ]


def simulated(
    workers: int, tests: Sequence[str], expected: Any = None, most_restarts: int | None = None
) -> SimulatedXdist:
    return SimulatedXdist(
        workers, lambda name: tests, lambda *given: ProblemScheduling(*given, expected), most_restarts
    )


def run_to_the_end(xdist: SimulatedXdist) -> None:
    while not xdist.ended:
        assert xdist.go_on(), "nobody has anything to do, and the session has not ended"


def kill_one_after(xdist: SimulatedXdist, tests: int) -> None:
    while len(xdist.ran) < tests:
        assert xdist.go_on()
    xdist.living[-1].die()


# ---- without deaths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
@pytest.mark.parametrize("counts", [[], [1], [2], [1, 1], [3, 1, 2], [40, 1, 40], [1] * 7, [17, 16, 15]])
def test_every_test_runs_once_and_a_problem_stays_on_one_worker(workers: int, counts: list[int]) -> None:
    tests = [*pairs(counts), "test_mine.py::test_other", "test_mine.py::test_one"]
    xdist = simulated(workers, tests)
    taken = defaultdict(set)
    hooked = xdist.controller.worker_logstart

    def noted(node: Any, nodeid: str, location: Any) -> None:
        taken[pair_of(nodeid)[0]].add(node)
        hooked(node, nodeid, location)

    xdist.controller.worker_logstart = noted  # type: ignore[method-assign]
    run_to_the_end(xdist)
    assert sorted(xdist.ran) == sorted(tests)
    assert all(len(nodes) == 1 for name, nodes in taken.items() if name)
    assert xdist.scheduler.unfinished == 0


def test_a_problem_s_tests_run_in_their_order() -> None:
    tests = pairs([50])
    xdist = simulated(1, tests)
    run_to_the_end(xdist)
    assert xdist.ran == tests


def test_every_worker_has_a_unit_before_one_has_two() -> None:
    xdist = simulated(2, pairs([1, 1]))
    run_to_the_end(xdist)
    assert len(xdist.all_workers) == 2
    # Each got its shutdown at once: with one test it would wait for a second.
    assert all(worker.told_to_end for worker in xdist.all_workers)


def test_long_units_go_first_and_equal_ones_keep_their_order() -> None:
    expected: list[Mapping[str, int]] = []

    def times(counts: Mapping[str, int]) -> dict[str, float]:
        expected.append(counts)
        return {problem(1): 1.0, problem(2): 5.0, problem(3): 5.0, problem(4): 9.0}

    tests = pairs([3, 3, 3, 3])
    xdist = simulated(1, ["test_mine.py::test_one", *tests], times)
    run_to_the_end(xdist)
    assert list(dict.fromkeys(pair_of(one)[0] for one in xdist.ran)) == [
        *(problem(4), problem(2), problem(3), problem(1)),
        None,
    ]
    assert expected == [{problem(number): 3 for number in (1, 2, 3, 4)}]


def test_a_stop_waits_for_a_few_tests_only() -> None:
    xdist = simulated(2, pairs([400, 400]))
    while len(xdist.ran) < 50:
        xdist.go_on()
    xdist.controller.triggershutdown()
    run_to_the_end(xdist)
    assert 50 <= len(xdist.ran) <= 90
    assert xdist.scheduler.unfinished == 800 - len(xdist.ran)


# ---- deaths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("after", range(1, 24))
def test_a_death_at_any_time_fails_only_the_running_test(workers: int, after: int) -> None:
    tests = pairs([8, 8, 8])
    xdist = simulated(workers, tests)
    kill_one_after(xdist, after)
    run_to_the_end(xdist)
    assert Counter(xdist.ran) + Counter(xdist.crashed) >= Counter(tests)
    assert max(Counter(xdist.ran).values()) == 1
    assert len(xdist.crashed) <= 1


def test_a_test_that_kills_its_worker_is_not_repeated() -> None:
    tests = pairs([6, 3])
    xdist = simulated(2, tests)
    xdist.deadly = {tests[2], tests[5], tests[6]}
    run_to_the_end(xdist)
    assert sorted(xdist.crashed) == sorted(xdist.deadly)
    assert sorted(xdist.ran) == sorted({*tests} - xdist.deadly)
    assert len(xdist.all_workers) == 2 + 3


def test_workers_that_die_before_their_first_test_end_the_session() -> None:
    tests = pairs([3])
    xdist = simulated(1, tests)
    while not xdist.ended:
        assert xdist.go_on()
        for worker in xdist.living:
            if xdist.scheduler._workers.get(worker) and xdist.scheduler._workers[worker].sent:
                worker.die()
    assert sorted(xdist.crashed) == tests


def test_tests_left_without_restarts_are_counted() -> None:
    tests = pairs([8, 8])
    xdist = simulated(2, tests, most_restarts=0)
    kill_one_after(xdist, 5)
    run_to_the_end(xdist)
    assert len(xdist.ran) + len(xdist.crashed) + xdist.scheduler.unfinished == len(tests)
    assert xdist.scheduler.unfinished > 0


def test_a_hook_may_repeat_a_crashed_test() -> None:
    tests = pairs([6, 2])
    xdist = simulated(2, tests)
    xdist.pytest_handlecrashitem = (  # type: ignore[method-assign]
        lambda crashitem, report, sched: sched.mark_test_pending(crashitem)
    )
    kill_one_after(xdist, 3)
    run_to_the_end(xdist)
    assert set(xdist.ran) == set(tests)


# ---- collections that differ -------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [pairs([5]), pairs([7]), [*pairs([5]), "test_mine.py::test_one"]])
def test_workers_that_collect_differently_end_the_session_with_an_error(other: list[str]) -> None:
    xdist = SimulatedXdist(2, lambda name: other if name == "gw1" else pairs([6]), ProblemScheduling)
    run_to_the_end(xdist)
    assert not xdist.ran
    (error,) = xdist.errors
    first = 7 if len(other) == 7 else 6
    assert f"gw1 collected {len(other)} tests and gw0 6; the first that differs is number {first}" in error


def test_a_replacement_that_collects_differently_ends_the_session_with_an_error() -> None:
    tests = pairs([20, 20])
    for workers in (1, 2):
        xdist = SimulatedXdist(
            workers, lambda name, n=workers: tests[:-1] if name == f"gw{n}" else tests, ProblemScheduling
        )
        kill_one_after(xdist, 4)
        run_to_the_end(xdist)
        assert "the first that differs is number 40: no test and " in xdist.errors[0]
        assert max(Counter(xdist.ran).values()) == 1


# ---- random sequences of events ----------------------------------------------------------------------------


class Session(RuleBasedStateMachine):
    """Workers and controller take steps in any order, and workers die at any time."""

    @initialize(
        workers=st.integers(1, 4),
        counts=st.lists(st.integers(1, 20), max_size=5),
        most_restarts=st.none() | st.integers(0, 6),
    )
    def begin(self, workers: int, counts: list[int], most_restarts: int | None) -> None:
        self.tests = [*pairs(counts), "test_mine.py::test_one"]
        self.xdist = simulated(workers, self.tests, None, most_restarts)
        self.deaths = 0

    @rule(times=st.integers(1, 10))
    def the_controller_listens(self, times: int) -> None:
        for _ in range(times):
            self.xdist.hear()

    @rule(data=st.data(), times=st.integers(1, 30))
    @precondition(lambda self: self.xdist.living)
    def a_worker_goes_on(self, data: st.DataObject, times: int) -> None:
        worker = data.draw(st.sampled_from(self.xdist.living))
        for _ in range(times):
            worker.step()

    @rule(data=st.data())
    @precondition(lambda self: self.xdist.living)
    def a_worker_dies(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.xdist.living)).die()
        self.deaths += 1

    @invariant()
    def nothing_runs_twice(self) -> None:
        if hasattr(self, "xdist"):
            assert not self.xdist.ran or max(Counter(self.xdist.ran).values()) == 1

    def teardown(self) -> None:
        if not hasattr(self, "xdist"):
            return
        run_to_the_end(self.xdist)
        ran, crashed = Counter(self.xdist.ran), Counter(self.xdist.crashed)
        left = len(self.tests) - len({*ran, *crashed})
        assert max([*ran.values(), *crashed.values()], default=1) == 1
        assert sum(crashed.values()) <= self.deaths
        if left:
            # Only --max-worker-restart leaves tests behind, and the session counts them.
            assert self.xdist.controller._summary_report
            assert self.xdist.scheduler.unfinished >= left or not self.xdist.scheduler._dealt


@pytest.mark.slow
def test_every_test_runs_once_or_is_reported() -> None:
    run_state_machine_as_test(Session, settings=settings(max_examples=60, stateful_step_count=40))
