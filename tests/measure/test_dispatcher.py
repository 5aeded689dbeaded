"""The dispatcher against devices that come, go, die, lie and lag in any order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tile_oracle.measure.dispatcher import (
    DEATHS_TO_BLAME,
    DEATHS_TO_ISOLATE,
    Assign,
    Blame,
    Dispatcher,
    Task,
    Withdraw,
)


class Fleet:
    """Devices that do what they are told; what counts is noted."""

    def __init__(self, tasks: list[Task], **options: bool) -> None:
        self.now = 0.0
        self.tasks = tasks
        self.dispatcher = Dispatcher(**options)
        for task in tasks:
            self.dispatcher.add(task)
        self.unbuilt = [(task.problem, kernel) for task in tasks for kernel in task.unbuilt]
        self.work: dict[str, Assign] = {}
        self.open: dict[str, list[str]] = {}
        self.counted: Counter[tuple[str, str]] = Counter()
        self.finals: Counter[str] = Counter()
        self.blamed: list[tuple[str, str]] = []
        self.late: list[tuple[str, int, str, str]] = []

    def give_orders(self) -> None:
        for order in self.dispatcher.orders(self.now):
            if isinstance(order, Assign):
                assert order.device not in self.work, "a device has one assignment at a time"
                self.work[order.device], self.open[order.device] = order, list(order.kernels)
            elif isinstance(order, Withdraw):
                # A device may have run some of them; what it has not is left out.
                self.open[order.device] = [k for k in self.open[order.device] if k not in order.kernels]
            else:
                assert isinstance(order, Blame)
                self.blamed.append((order.problem, order.kernel))

    def join(self, device: str) -> None:
        self.forget(device)
        self.dispatcher.joined(device)

    def forget(self, device: str) -> None:
        work = self.work.pop(device, None)
        if work is not None:
            self.late += [(device, work.number, work.problem, k) for k in self.open.pop(device)]

    def build(self, count: int = 1) -> None:
        built, self.unbuilt = self.unbuilt[:count], self.unbuilt[count:]
        for pair in built:
            self.dispatcher.built(*pair)

    def die(self, device: str, *, died: bool = True) -> None:
        self.forget(device)
        self.dispatcher.gone(device, died=died)

    def finish_one(self, device: str) -> None:
        work, left = self.work[device], self.open[device]
        self.report(device, work.number, work.problem, left.pop(0))

    def report(self, device: str, number: int, problem: str, kernel: str) -> None:
        if self.dispatcher.finished(device, number, kernel):
            self.counted[problem, kernel] += 1

    def end(self, device: str) -> None:
        work = self.work.pop(device)
        del self.open[device]
        if self.dispatcher.ended(device, work.number):
            self.finals[work.problem] += 1

    def finish_all(self, limit: int = 100_000) -> None:
        """Whatever was, the devices that are there do the rest."""
        for _ in range(limit):
            self.give_orders()
            if self.dispatcher.complete:
                return
            self.now += 1.0
            for device in [*self.work]:
                if self.open[device]:
                    self.finish_one(device)
                else:
                    self.end(device)
        raise AssertionError("the fleet never ends")

    def check_end(self) -> None:
        every = [(task.problem, kernel) for task in self.tasks for kernel in task.kernels]
        assert self.counted + Counter(self.blamed) == Counter(every)
        assert all(map(self.dispatcher.has_measured, self.finals))
        assert all(count == 1 for count in self.finals.values())
        assert set(self.finals) | set(self.dispatcher.without_finals) == {task.problem for task in self.tasks}


def tasks(*sizes: int, built: int = 1000) -> list[Task]:
    """built: kernels of each problem that are built already, the first ones."""
    kernels = [[f"k{kernel}" for kernel in range(size)] for size in sizes]
    return [
        Task(f"p{number}", names, float(len(names)), unbuilt=names[built:])
        for number, names in enumerate(kernels)
    ]


def again(fleet: Fleet, name: str) -> None:
    fleet.tasks.append(Task(name, (), after_stop=True))
    fleet.dispatcher.add(fleet.tasks[-1])


DEVICES = [f"d{number}" for number in range(5)]


class AnyFleet(RuleBasedStateMachine):
    """Whatever happens in whatever order, what is finished counts once, and the fleet ends."""

    @initialize(
        sizes=st.lists(st.integers(0, 24), max_size=6),
        built=st.integers(0, 24),
        in_order=st.booleans(),
        ahead=st.booleans(),
    )
    def begin(self, sizes: list[int], built: int, in_order: bool, ahead: bool) -> None:
        self.fleet = Fleet(tasks(*sizes, built=built), in_order=in_order, ahead=ahead)

    @rule(count=st.integers(1, 9))
    def build(self, count: int) -> None:
        self.fleet.build(count)

    @rule(device=st.sampled_from(DEVICES))
    def join(self, device: str) -> None:
        self.fleet.join(device)

    @rule(device=st.sampled_from(DEVICES), died=st.booleans())
    def die(self, device: str, died: bool) -> None:
        self.fleet.die(device, died=died)

    @rule(seconds=st.floats(0.1, 100.0))
    def wait(self, seconds: float) -> None:
        self.fleet.now += seconds

    @rule()
    def orders(self) -> None:
        self.fleet.give_orders()

    @rule()
    def time_again(self) -> None:
        again(self.fleet, f"again {len(self.fleet.tasks)}")

    @precondition(lambda self: any(self.fleet.open.values()))
    @rule(data=st.data(), count=st.integers(1, 9))
    def finish(self, data: st.DataObject, count: int) -> None:
        device = data.draw(st.sampled_from(sorted(d for d, left in self.fleet.open.items() if left)))
        for _ in range(min(count, len(self.fleet.open[device]))):
            self.fleet.finish_one(device)

    @precondition(lambda self: bool(self.fleet.work))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Also with kernels left, which a broken device might do."""
        self.fleet.end(data.draw(st.sampled_from(sorted(self.fleet.work))))

    @precondition(lambda self: bool(self.fleet.late))
    @rule(data=st.data())
    def late_result(self, data: st.DataObject) -> None:
        """A device that counts as dead reports what it has measured meanwhile."""
        self.fleet.report(*data.draw(st.sampled_from(self.fleet.late)))

    def teardown(self) -> None:
        if not hasattr(self, "fleet"):
            return
        self.fleet.join("d0")
        self.fleet.join("healthy")
        self.fleet.build(1000)
        self.fleet.finish_all()
        self.fleet.check_end()


TestAnyFleet = AnyFleet.TestCase
TestAnyFleet.settings = settings(max_examples=60, stateful_step_count=40)


def test_long_problems_begin_first_and_finals_are_the_devices_own() -> None:
    fleet = Fleet(tasks(3, 9, 5))
    fleet.join("a")
    fleet.join("b")
    fleet.give_orders()
    assert [(w.device, w.problem, w.finals) for w in fleet.work.values()] == [
        ("a", "p1", True),
        ("b", "p2", True),
    ]


def test_with_a_budget_problems_begin_in_their_order_and_nothing_that_waits_runs_after_its_end() -> None:
    fleet = Fleet(tasks(3, 9, 5), in_order=True)
    fleet.join("a")
    fleet.give_orders()
    assert fleet.work["a"].problem == "p0"
    fleet.finish_one("a")
    fleet.dispatcher.stop()
    fleet.join("idle")
    fleet.finish_all()
    assert set(fleet.counted) == {("p0", "k0")}
    assert not fleet.finals
    assert not fleet.work
    assert fleet.dispatcher.has_measured("p0")


def test_leaders_that_a_device_has_at_the_end_of_a_budget_count() -> None:
    fleet = Fleet(tasks(2, 2), in_order=True)
    fleet.join("a")
    fleet.give_orders()
    fleet.finish_one("a")
    fleet.finish_one("a")
    fleet.dispatcher.stop()
    fleet.finish_all()
    assert set(fleet.finals) == {"p0"}


def test_a_kernel_that_was_taken_back_is_not_blamed() -> None:
    fleet = Fleet(tasks(1))
    for death in range(DEATHS_TO_BLAME):
        fleet.join("a")
        fleet.give_orders()
        if death < DEATHS_TO_BLAME - 1:
            fleet.die("a")
    fleet.dispatcher.stop()
    fleet.finish_all()
    assert not fleet.blamed
    assert not fleet.counted


def test_a_problem_begins_with_its_first_binary_and_ends_with_its_last() -> None:
    fleet = Fleet(tasks(4, built=0))
    fleet.join("a")
    fleet.give_orders()
    assert not fleet.work
    for kernel in ("k0", "k1", "k2", "k3"):
        fleet.build()
        fleet.give_orders()
        assert fleet.work["a"].kernels == (kernel,)
        assert fleet.work["a"].finals == (kernel == "k3"), "not before all are measured"
        fleet.finish_one("a")
        fleet.end("a")
    assert fleet.dispatcher.complete


def test_while_a_device_waits_for_binaries_it_runs_the_half_that_other_problems_have() -> None:
    fleet = Fleet(tasks(8, 8, built=2), in_order=True)
    fleet.join("a")
    fleet.give_orders()
    assert (fleet.work["a"].problem, fleet.work["a"].kernels) == ("p0", ("k0", "k1"))
    while fleet.open["a"]:
        fleet.finish_one("a")
    fleet.end("a")
    fleet.give_orders()
    assert not fleet.work, "p1 would cost a change of data for two of eight kernels"
    fleet.unbuilt.reverse()
    fleet.build(2)  # of p1
    fleet.give_orders()
    assert (fleet.work["a"].problem, len(fleet.work["a"].kernels)) == ("p1", 4)
    fleet.build(100)
    fleet.finish_all()
    fleet.check_end()


def test_a_binary_goes_to_the_device_that_has_its_problems_data() -> None:
    fleet = Fleet(tasks(8, 8, built=4), in_order=True)
    for device in ("a", "b"):
        fleet.join(device)
    fleet.give_orders()
    for device in ("a", "b"):
        while fleet.open[device]:
            fleet.finish_one(device)
        fleet.end(device)
    fleet.unbuilt.reverse()
    fleet.build()  # of p1
    fleet.give_orders()
    assert [(one.device, one.kernels) for one in fleet.work.values()] == [("b", ("k7",))]


@pytest.mark.parametrize("ahead", [True, False])
def test_with_a_budget_one_problem_at_a_time_waits_for_binaries(ahead: bool) -> None:
    fleet = Fleet(tasks(4, 4, built=2), in_order=True, ahead=ahead)
    fleet.join("a")
    fleet.join("b")
    fleet.give_orders()
    assert {one.problem for one in fleet.work.values()} == ({"p0", "p1"} if ahead else {"p0"})
    fleet.build(100)
    fleet.finish_all()
    fleet.check_end()


def test_the_part_of_a_dead_device_goes_on_without_its_finished_pairs() -> None:
    fleet = Fleet(tasks(5))
    fleet.join("a")
    fleet.give_orders()
    fleet.finish_one("a")
    fleet.finish_one("a")
    fleet.join("b")
    fleet.die("a")
    fleet.give_orders()
    assert fleet.work["b"].kernels == ("k2", "k3", "k4")
    assert fleet.work["b"].finals


def test_an_idle_device_takes_half_of_a_stragglers_kernels_and_one_measures_the_leaders() -> None:
    fleet = Fleet(tasks(20))
    fleet.join("slow")
    fleet.give_orders()
    fleet.now = 10.0
    fleet.finish_one("slow")
    fleet.finish_one("slow")
    fleet.join("idle")
    fleet.give_orders()
    assert fleet.work["idle"].kernels == tuple(f"k{n}" for n in range(11, 20))
    assert not fleet.work["idle"].finals
    assert len(fleet.open["slow"]) == 9
    assert not fleet.dispatcher.takes_finals("slow", fleet.work["slow"].number)
    fleet.finish_all()
    fleet.check_end()


def test_a_short_rest_is_not_worth_a_split() -> None:
    fleet = Fleet(tasks(20))
    fleet.join("a")
    fleet.give_orders()
    fleet.now = 0.1
    fleet.finish_one("a")
    fleet.join("idle")
    fleet.give_orders()
    assert "idle" not in fleet.work


def test_a_kernel_that_kills_devices_is_found_and_blamed_and_the_others_are_measured() -> None:
    fleet = Fleet(tasks(30))
    deaths = 0
    for _ in range(1000):
        fleet.join("a")
        fleet.give_orders()
        if fleet.dispatcher.complete:
            break
        while fleet.open["a"] and fleet.open["a"][0] != "k7":
            fleet.finish_one("a")
        if fleet.open["a"]:
            deaths += 1
            fleet.die("a")
        else:
            fleet.end("a")
    assert fleet.blamed == [("p0", "k7")]
    assert deaths == DEATHS_TO_ISOLATE + DEATHS_TO_BLAME
    fleet.check_end()


def test_leaders_that_kill_devices_are_given_up() -> None:
    fleet = Fleet(tasks(1))
    fleet.join("a")
    fleet.give_orders()
    fleet.finish_one("a")
    for _ in range(3):
        fleet.die("a")
        fleet.join("a")
        fleet.give_orders()
    assert fleet.dispatcher.complete
    assert fleet.dispatcher.without_finals == ["p0"]


def test_a_device_that_comes_back_unseen_has_died_at_its_kernel() -> None:
    fleet = Fleet(tasks(1))
    for _ in range(DEATHS_TO_BLAME):
        fleet.join("a")
        fleet.give_orders()
    fleet.join("a")
    fleet.give_orders()
    assert fleet.blamed == [("p0", "k0")]


def test_a_device_that_is_set_aside_is_not_a_death_of_its_kernels() -> None:
    fleet = Fleet(tasks(3))
    for number in range(20):
        fleet.join(f"d{number}")
        fleet.give_orders()
        fleet.die(f"d{number}", died=False)
    fleet.join("good")
    fleet.finish_all()
    assert not fleet.blamed
    fleet.check_end()


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 60), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_devices_of_any_speed_share_the_work(devices: int, sizes: list[int], chance: object) -> None:
    fleet = Fleet(tasks(*sizes))
    for number in range(devices):
        fleet.join(f"d{number}")
    fleet.finish_all()
    fleet.check_end()
    longest = max(sizes) + sum(sizes) / devices
    assert fleet.now <= 2 * longest + 20


def test_a_problem_is_added_once() -> None:
    fleet = Fleet(tasks(1))
    with pytest.raises(ValueError, match="p0 is there already"):
        fleet.dispatcher.add(Task("p0", ["k"]))


def test_what_is_timed_again_begins_after_no_problem_does_and_may_be_forgotten_before() -> None:
    fleet = Fleet(tasks(2))
    fleet.join("a")
    fleet.finish_all()
    fleet.dispatcher.stop()
    for name in ("again 0", "again 1"):
        again(fleet, name)
    fleet.give_orders()
    assert fleet.work["a"].problem == "again 0"
    assert not fleet.dispatcher.forget("again 0")
    assert fleet.dispatcher.forget("again 1")
    fleet.end("a")
    fleet.give_orders()
    assert fleet.dispatcher.complete
    assert not fleet.work


def test_each_device_expects_another_problem_and_gets_it() -> None:
    tasks = [Task(name, ["k"], weight) for name, weight in zip("abcde", (5, 4, 3, 2, 1), strict=True)]
    fleet = Fleet(tasks)
    for device in "xy":
        fleet.join(device)
    fleet.give_orders()
    assert [fleet.work[device].problem for device in "xy"] == ["a", "b"]
    assert [fleet.dispatcher.upcoming(device) for device in "xyx"] == ["c", "d", "c"]
    order = fleet.work.pop("y")
    fleet.dispatcher.finished("y", order.number, "k")
    fleet.dispatcher.ended("y", order.number)
    fleet.give_orders()
    assert fleet.work["y"].problem == "d", "whose data it has, though c takes longer"
    assert fleet.dispatcher.upcoming("y") == "e"
    fleet.dispatcher.gone("x")
    assert fleet.dispatcher.upcoming("y") == "c"
