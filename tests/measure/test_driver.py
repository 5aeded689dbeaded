"""The driver of a fleet against simulated devices: what is recorded, whatever happens to the devices."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measure.simulated_engine import KERNELS, PROBLEMS, SimulatedFleet, result
from tests.processes import LONGEST_S
from tile_oracle.errors import DeviceMissingError, HarnessError, KernelError, NotBegunError, RecordError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.assignments import Ended
from tile_oracle.measure.engine import Gone, Told
from tile_oracle.problem import problem_from_id


def test_a_fleet_records_every_pair_and_every_problem_s_leaders_once() -> None:
    fleet = SimulatedFleet([5, 9, 1, 0, 30])
    fleet.begin("a", "b", "c")
    fleet.run()
    fleet.check()
    one = fleet.driver.measure(fleet.tasks[0].problem, KERNELS[0])
    assert (one.status, one.resumed) == ("ok", False)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 25), min_size=1, max_size=8), st.integers(0, 10**6), st.floats(0.0, 0.5))
def test_nothing_is_lost_or_doubled_whatever_dies(sizes: list[int], seed: int, deadly: float) -> None:
    chance = random.Random(seed)
    fleet = SimulatedFleet(sizes)
    fleet.begin()
    names = [f"d{number}" for number in range(4)]
    for _ in range(40):
        name = chance.choice(names)
        if chance.random() < deadly:
            fleet.engine.kill(name, died=chance.random() < 0.7)
        elif name not in fleet.engine.devices:
            fleet.engine.join(name)
        fleet.step(chance.randrange(1, 6))
    for name in names:
        if name not in fleet.engine.devices:
            fleet.engine.join(name)
    fleet.run()
    for one in fleet.driver._dispatcher.without_finals:
        assert f"the leaders of {one} were not measured again: devices died" in fleet.driver.all_notes()
    crashed = [r for r in fleet.log.rows if r["status"] == "crash"]
    if not crashed and not fleet.driver.notes and not fleet.driver._dispatcher.without_finals:
        fleet.check()
    every = {(task.problem.id, k.name) for task in fleet.tasks for k in task.kernels}
    pairs = fleet.log.pairs()
    assert set(pairs) == every
    assert set(pairs.values()) <= {1}
    assert set(fleet.log.pairs(1).values()) <= {1}


def test_leaders_of_a_dead_device_are_measured_again_on_one_device() -> None:
    fleet = SimulatedFleet([3])
    fleet.begin("a")
    fleet.step()
    told = fleet.engine.devices["a"].step(3)
    fleet.engine.pending += [Told("a", told[:-2]), Gone("a", "killed")]  # one leader's row, no end
    del fleet.engine.devices["a"]
    fleet.step()
    assert not fleet.log.pairs(1)
    fleet.engine.join("b")
    fleet.run()
    fleet.check()


def test_a_lost_device_is_set_aside_and_its_pairs_go_to_another() -> None:
    fleet = SimulatedFleet([4])
    fleet.begin()
    for _ in range(3):
        fleet.engine.join("a")
        fleet.step()
        number = fleet.engine.devices["a"].work.number
        fleet.engine.devices["a"].work = None
        fleet.engine.pending.append(Told("a", [Ended(number, lost="a known-good kernel is now wrong")]))
        fleet.step()
    assert fleet.engine.dropped == [("a", True), ("a", True), ("a", False)]
    fleet.engine.join("b")
    fleet.run()
    fleet.check()
    assert fleet.driver.all_notes() == ["a (H200) is set aside: a known-good kernel is now wrong"]


def test_only_devices_of_the_wanted_kind_get_work() -> None:
    fleet = SimulatedFleet([4], match="NVIDIA H*")
    fleet.begin(a="AMD MI355X", b="NVIDIA H200")
    fleet.run()
    assert {r["device"] for r in fleet.log.rows} == {"b"}
    assert fleet.driver.all_notes() == ["a (AMD MI355X) is set aside: is AMD MI355X, not NVIDIA H*"]


def test_devices_of_another_kind_than_the_first_are_set_aside() -> None:
    fleet = SimulatedFleet([4])
    fleet.begin(a="H200", b="H100")
    fleet.run()
    assert {r["device"] for r in fleet.log.rows} == {"a"}
    assert fleet.engine.dropped == [("b", False)]
    assert fleet.driver.all_notes() == ["b (H100) is set aside: is H100, not H200"]


def test_a_fleet_without_a_device_ends() -> None:
    fleet = SimulatedFleet([4], no_device_s=20.0)
    fleet.begin("a")
    fleet.step()
    fleet.engine.kill("a", "its node has left the cluster")
    with pytest.raises(DeviceMissingError, match=r"for 20 s \(a: its node has left the cluster\).*--resume"):
        fleet.run()


def test_a_fleet_waits_for_builds_without_a_device() -> None:
    fleet = SimulatedFleet([4], no_device_s=20.0)
    fleet.builds.held.add(PROBLEMS[0])
    fleet.begin()
    for _ in range(100):
        fleet.step()
    assert not fleet.driver.is_complete()
    fleet.builds.arrived.append((PROBLEMS[0], KERNELS[0].name))
    with pytest.raises(DeviceMissingError, match="for 20 s"):
        fleet.run()


def test_what_cannot_be_recorded_ends_the_session() -> None:
    fleet = SimulatedFleet([4])
    fleet.log.fails = RecordError("the disk is full")
    fleet.start("a")
    with pytest.raises(RecordError, match="the disk is full"):
        fleet.driver.measure(fleet.tasks[0].problem, KERNELS[0])
    fleet.driver.abandon()
    assert fleet.engine.closed


def test_after_the_deadline_nothing_that_waits_is_measured_not_even_of_a_begun_problem() -> None:
    fleet = SimulatedFleet([9, 3], in_order=True, deadline=1003.5)
    fleet.begin("a")
    fleet.run()
    found = fleet.log.pairs()
    assert {pair[0] for pair in found} == {PROBLEMS[0]}
    assert 0 < len(found) < 9
    assert not fleet.log.pairs(1), "the leaders of some kernels are not those of all"
    for task in fleet.tasks:
        for kernel in task.kernels:
            if (task.problem.id, kernel.name) in found:
                assert fleet.driver.measure(task.problem, kernel).ok
                continue
            with pytest.raises(NotBegunError):
                fleet.driver.measure(task.problem, kernel)


def earlier(number: int, kernel: Kernel, *rounds: int, status: str = "ok") -> list[dict[str, Any]]:
    problem = problem_from_id(PROBLEMS[number])
    return [result(problem, kernel, round_, status=status).as_row() for round_ in rounds]


def test_earlier_results_are_not_measured_again_and_count_as_known() -> None:
    fleet = SimulatedFleet([3, 2, 2])
    first, second = KERNELS[:2]
    for number, rounds in ((0, (0,)), (1, (0, 1)), (2, (0,))):
        fleet.log.earlier += [*earlier(number, first, *rounds), *earlier(number, second, *rounds)]
    fleet.begin("a")
    fleet.run()
    assert fleet.log.pairs() == {(PROBLEMS[0], KERNELS[2].name): 1}
    assert {pair[0] for pair in fleet.log.pairs(1)} == {PROBLEMS[0], PROBLEMS[2]}
    assert fleet.driver.measure(fleet.tasks[1].problem, first).resumed


def test_a_pair_that_was_not_planned_is_resumed_as_any_other() -> None:
    fleet = SimulatedFleet([1])
    fleet.log.earlier = earlier(9, KERNELS[0], 0)
    fleet.start("a")
    assert fleet.driver.measure(problem_from_id(PROBLEMS[9]), KERNELS[0]).resumed
    fleet.driver.wait()
    fleet.driver.abandon()
    assert set(fleet.log.pairs()) == {(PROBLEMS[0], KERNELS[0].name)}


def test_a_new_pick_of_a_resumed_problem_is_measured_again_with_the_leaders() -> None:
    """The picks depend on the device's baseline, so they are known when a device has joined."""
    fleet = SimulatedFleet([3])
    slow = KERNELS[2]
    for kernel in KERNELS[:2]:
        fleet.log.earlier += earlier(0, kernel, 0, 1)
    fleet.log.earlier += [{**earlier(0, slow, 0)[0], "latency_ms": 1.5}]
    fleet.picked = [slow]
    fleet.begin()
    fleet.step()
    assert not fleet.driver.is_complete()
    fleet.engine.join("a", "H200")
    fleet.step()
    assert fleet.kinds == ["H200"]
    work = fleet.engine.devices["a"].work
    assert (work.problem, work.kernels, work.picks, work.finals) == (PROBLEMS[0], (), (slow.name,), True)


def test_results_of_earlier_sessions_wait_for_a_device() -> None:
    """What a baseline knows of a device's failures belongs to every result."""
    fleet = SimulatedFleet([1], no_device_s=20.0)
    fleet.log.earlier = earlier(0, KERNELS[0], 0)
    fleet.begin()
    with pytest.raises(DeviceMissingError, match="for 20 s"):
        fleet.run()


def test_a_kernel_of_another_kind_is_refused() -> None:
    fleet = SimulatedFleet([1])
    other = problem_from_id(PROBLEMS[0].replace("fp32", "fp16"))
    with pytest.raises(KernelError, match="direction, dtype and rank must be equal"):
        fleet.driver.measure(other, KERNELS[0])


def test_a_pair_that_was_not_planned_is_measured_when_it_is_asked_for() -> None:
    fleet = SimulatedFleet([2])
    fleet.start("a")
    assert fleet.driver.measure(fleet.tasks[0].problem, KERNELS[7]).status == "ok"
    assert fleet.driver.measure(problem_from_id(PROBLEMS[9]), KERNELS[0]).status == "ok"
    fleet.driver.abandon()
    with pytest.raises(HarnessError, match="the session's devices were closed"):
        fleet.driver.measure(problem_from_id(PROBLEMS[8]), KERNELS[0])


def test_leaders_are_timed_again_on_the_device_that_measured_them() -> None:
    fleet = SimulatedFleet([3, 3])
    fleet.start("a", "b")
    fleet.driver.wait()
    jobs = [
        (task.problem, [result(task.problem, kernel) for kernel in KERNELS[:2]], 2)
        for task in fleet.tasks
        for _ in range(2)
    ]
    assert fleet.driver.remeasure_all(jobs, time.monotonic() + 60) == [job[0] for job in jobs]
    again = [r for r in fleet.log.rows if r["round"] == 2]
    assert len(again) == 8
    assert {r["device"] for r in again} == {"a", "b"}
    fleet.driver.abandon()


def test_timing_again_ends_with_its_time() -> None:
    fleet = SimulatedFleet([1])
    fleet.start("a")
    fleet.driver.wait()
    fleet.engine.kill("a")
    problem = fleet.tasks[0].problem
    job = (problem, [result(problem, KERNELS[0])], 2)
    assert fleet.driver.remeasure_all([job], time.monotonic() + 0.5) == []
    fleet.driver.abandon()


def test_a_question_that_waits_is_answered_when_the_fleet_ends() -> None:
    fleet = SimulatedFleet([1])
    fleet.start()
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            fleet.driver.measure(fleet.tasks[0].problem, KERNELS[0])
        except HarnessError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    fleet.driver.abandon()
    thread.join(LONGEST_S)
    assert len(caught) == 1


def test_leaders_that_kill_devices_are_named() -> None:
    fleet = SimulatedFleet([2])
    fleet.begin("a")
    fleet.step()
    told = fleet.engine.devices["a"].step(2)
    fleet.engine.pending += [Told("a", told[:2]), Gone("a", "killed")]  # both kernels' rows, no leader's
    del fleet.engine.devices["a"]
    for name in "bcd":
        fleet.step()
        fleet.engine.join(name)
        fleet.step()
        fleet.engine.kill(name)
    fleet.step()
    lost = f"the leaders of {PROBLEMS[0]} were not measured again: devices died"
    assert lost in fleet.driver.all_notes()
