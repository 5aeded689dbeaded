"""A device's process, and binaries that come from another machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import wait_until
from tests.pytest_project import KERNELS, PROBLEMS, Project
from tile_oracle.errors import HarnessError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import Binaries, DeviceSettings, Ended, Message, Row, Shipment, Work
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.device_runner import DeviceRunner, Shipments
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.measuring import Measuring
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.journal import decode_line
from tile_oracle.targets import TargetOptions
from tile_oracle.targets.resolve import open_target
from tile_oracle.targets.target import Target

PROBLEM: Problem = problem_from_id(PROBLEMS[0])
TWO: list[Kernel] = [parse_kernel_name(f"grouped_conv_forward_fp32_2d_{name}") for name in KERNELS]


@pytest.fixture(scope="module")
def cache(make_project: Callable[[], Project]) -> Path:
    return Path(make_project().environment["TILE_ORACLE_CACHE"])


@pytest.fixture
def here(cache: Path) -> Iterator[Target]:
    target = open_target("cpu", TargetOptions(build_dir=cache))
    yield target
    target.close()


def built(target: Target, ship: Callable[[Shipment], Any]) -> Binaries:
    """The binaries of both kernels as a device of another machine gets them."""
    builds = Builds(target, ship)
    left = set(builds.want("both", PROBLEM, TWO))
    while left:
        builds.wait(60.0)
        left -= {name for _, name in builds.ready()}
    assert builds.binaries(TWO, remote=False) == Binaries()
    return builds.binaries(TWO, remote=True)


def test_a_machine_without_the_binaries_gets_them_and_compiles_nothing(here: Target, tmp_path: Path) -> None:
    shipped: list[Shipment] = []
    binaries = built(here, lambda shipment: shipped.append(shipment) or len(shipped) - 1)
    assert set(binaries.shipped) == {kernel.name for kernel in TWO}
    there = open_target("cpu", TargetOptions(build_dir=tmp_path / "other", jobs=1))
    Shipments(there, shipped.__getitem__).take(binaries)
    for kernel in TWO:
        ours, theirs = here.build(kernel).result().binary, there.build(kernel).result().binary
        assert theirs.path.read_bytes() == ours.path.read_bytes()
        assert theirs.path != ours.path
    assert there.builder.stats().compiled == 0
    there.close()


def test_what_cannot_be_shipped_is_compiled_there(here: Target, tmp_path: Path) -> None:
    other: list[Shipment | None] = []
    binaries = built(here, lambda shipment: other.append(shipment._replace(key="0" * 64)) or len(other) - 1)
    other[1] = None  # its node has died
    there = open_target("cpu", TargetOptions(build_dir=tmp_path / "other"))
    Shipments(there, other.__getitem__).take(binaries)
    for kernel in TWO:
        assert there.build(kernel).result().binary is not None
    assert there.builder.stats().compiled == 2
    there.close()


def test_a_kernel_that_does_not_build_is_not_tried_again(here: Target) -> None:
    shipments = Shipments(here, lambda reference: None)
    shipments.take(Binaries(failed={TWO[0].name: "error: no such register"}))
    result = here.build(TWO[0]).result()
    assert (result.status, result.log) == ("build_error", "error: no such register")


@pytest.fixture(scope="module")
def runner(cache: Path) -> Iterator[DeviceRunner]:
    sweep = SweepSettings(timing=TimingPlan(budget_ms=1.0, exact_samples=5))
    one = DeviceRunner(DeviceSettings("cpu", TargetOptions(build_dir=cache), sweep, "the-run"))
    yield one
    one.close()
    assert not one._thread.is_alive()
    assert one._measuring._supervisor.worker_pid is None


def messages(runner: DeviceRunner) -> list[Message]:
    """Everything until the assignment has ended."""
    found: list[Message] = []
    wait_until(lambda: found.extend(runner.take(1.0, 0.1)) or (found and isinstance(found[-1], Ended)))
    return found


def test_a_device_measures_an_assignment_as_a_session_does(runner: DeviceRunner) -> None:
    assert runner.open().kind
    runner.assign(Work(7, PROBLEM.id, tuple(kernel.name for kernel in TWO)))
    *rows, ended = messages(runner)
    assert ended == Ended(7)
    assert all(isinstance(row, Row) and row.number == 7 for row in rows)
    pairs = {(row.result.kernel.name, row.result.round) for row in rows if isinstance(row, Row)}
    assert {(kernel.name, round_) for kernel in TWO for round_ in (0, 1)} == pairs
    row = decode_line(rows[0].line.rstrip(b"\n")) if isinstance(rows[0], Row) else None
    assert row["run"] == "the-run"
    assert row["status"] in ("ok", "noisy")
    assert row["source_hash"]


def test_a_device_leaves_withdrawn_kernels_and_leaders_to_others(runner: DeviceRunner) -> None:
    runner.open()
    with runner._state:  # before the device's thread takes the assignment
        runner._work.append(Work(8, PROBLEM.id, tuple(kernel.name for kernel in TWO), finals=False))
        runner._state.notify_all()
    swept = messages(runner)
    assert {row.result.round for row in swept if isinstance(row, Row)} == {0}
    runner.withdraw(8, [TWO[0].name])  # too late: nothing happens
    runner.assign(Work(9, PROBLEM.id, (TWO[1].name,), finals=False))
    assert [row.result.kernel.name for row in messages(runner) if isinstance(row, Row)] == [TWO[1].name]


def test_a_straggler_leaves_kernels_that_are_taken_over_and_the_leaders(
    runner: DeviceRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.open()
    supervisor = runner._measuring._supervisor
    sweep = supervisor.sweep

    def withdrawn_once_it_has_begun(*given: Any, **options: Any) -> Iterator[Measurement]:
        runner.withdraw(10, [TWO[0].name])
        return sweep(*given, **options)

    monkeypatch.setattr(supervisor, "sweep", withdrawn_once_it_has_begun)
    runner.assign(Work(10, PROBLEM.id, tuple(kernel.name for kernel in TWO)))
    *rows, ended = messages(runner)
    assert ended == Ended(10)
    assert [(row.result.kernel.name, row.result.round) for row in rows if isinstance(row, Row)] == [
        (TWO[1].name, 0)
    ]


def test_what_is_taken_back_before_a_device_has_begun_is_not_run(runner: DeviceRunner) -> None:
    runner.open()
    runner.withdraw(11, [kernel.name for kernel in TWO])
    runner.assign(Work(11, PROBLEM.id, tuple(kernel.name for kernel in TWO)))
    assert messages(runner) == [Ended(11)]


def test_leaders_are_timed_again_as_rows_of_their_round(runner: DeviceRunner) -> None:
    runner.open()
    timed = tuple(Measurement(PROBLEM, kernel, "ok", "", 0, 0.01, 0.01, 0.0, 5, "full", 9) for kernel in TWO)
    runner.assign(Work(-1, PROBLEM.id, finals=False, known=timed, again=timed, again_round=3))
    rows = [row.result for row in messages(runner) if isinstance(row, Row)]
    assert {(one.kernel.name, one.round) for one in rows} == {(kernel.name, 3) for kernel in TWO}


def test_a_device_that_cannot_be_opened_says_why() -> None:
    runner = DeviceRunner(DeviceSettings("sm_90", TargetOptions(toolchain="zig"), SweepSettings(), "r"))
    with pytest.raises(HarnessError):
        runner.open()
    runner.close()


def test_a_pick_is_measured_itself_where_its_twin_has_not_passed_all_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was not built, and so not known, when the twin lost by its first checked run."""
    ran: list[str] = []

    def sweep(problem: Problem, kernels: list[Kernel], *_: object, **asked: Any) -> Iterator[Measurement]:
        ran.extend(kernel.name for kernel in kernels)
        yield from (Measurement(problem, kernel, "ok", latency_ms=9.0) for kernel in kernels)

    target = SimpleNamespace(refusal=lambda kernel, problem: None)
    supervisor: Any = SimpleNamespace(
        attempts=None, sweep=sweep, target=target, lost="", row_of=lambda measurement: {}
    )
    measuring = Measuring(supervisor, "it")
    monkeypatch.setattr(measuring, "_identify", lambda kernels: dict.fromkeys(kernels, ("code", "launch")))
    censored = Measurement(PROBLEM, TWO[0], "ok", latency_ms=9.0, at_least_ms=9.0)
    for picks in ((TWO[1].name,), ()):
        work = Work(1, PROBLEM.id, (TWO[1].name,), finals=False, known=(censored,), picks=picks)
        (row, _) = measuring.messages(work)
        assert isinstance(row, Row)
        assert row.result.is_censored == (not picks)
    assert ran == [TWO[1].name]


def test_what_was_withdrawn_of_earlier_assignments_is_forgotten() -> None:
    def sweep(problem: Problem, kernels: list[Kernel], *_: object, **asked: Any) -> Iterator[Measurement]:
        yield from (Measurement(problem, kernel, "ok") for kernel in kernels if asked["wanted"](kernel))

    nothing_compiled = SimpleNamespace(
        owner=lambda kernel: SimpleNamespace(builder=None), refusal=lambda kernel, problem: None
    )
    supervisor: Any = SimpleNamespace(
        attempts=None, sweep=sweep, target=nothing_compiled, waiting_for_compilers=nullcontext, lost=""
    )
    measuring = Measuring(supervisor, "it")
    for number in (1, 2, 3):
        measuring.withdraw(number, [TWO[0].name])
    assert list(measuring.messages(Work(2, PROBLEM.id, (TWO[0].name,)))) == [Ended(2)]
    assert set(measuring._withdrawn) == {2, 3}, "an assignment may be withdrawn from before it begins"


def test_an_assignment_ends_when_its_device_is_closed() -> None:
    """Whatever is measured meanwhile: its row would come after the end of the records."""
    told: list[str] = []

    def sweep(problem: Problem, kernels: list[Kernel], *_: object, **asked: Any) -> Iterator[Measurement]:
        assert asked["wanted"](kernels[0])
        measuring.end()
        assert not asked["wanted"](kernels[0])
        yield Measurement(problem, kernels[0], "ok")

    nothing_compiled = SimpleNamespace(
        owner=lambda kernel: SimpleNamespace(builder=None), refusal=lambda kernel, problem: None
    )
    supervisor: Any = SimpleNamespace(
        attempts=None,
        interrupt=lambda: told.append("interrupted"),
        sweep=sweep,
        target=nothing_compiled,
        waiting_for_compilers=nullcontext,
    )
    measuring = Measuring(supervisor, "it")
    assert list(measuring.messages(Work(7, PROBLEM.id, (TWO[0].name,)))) == [Ended(7, lost="closed")]
    assert told == ["interrupted"]
