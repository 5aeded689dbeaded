"""Devices without processes: they answer as devices do, with the faults that a test wants."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import Binaries, Ended, Message, Opened, Row, Work
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.driver import Driver, ProblemTask
from tile_oracle.measure.engine import Engine, Event, Gone, Joined, Told
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.journal import decode_line, encode_line

PROBLEMS = tuple(f"forward-fp32-n{n}-c8-k8-i6x6-f3x3" for n in range(1, 200))
KERNELS = tuple(
    parse_kernel_name(f"grouped_conv_forward_fp32_2d_16x16x{k}_basic_v1_intrawave_w1x1x1_wt4x16x1")
    for k in range(8, 8 * 60, 8)
)
LEADERS = 2


def result(
    problem: Problem, kernel: Kernel, round_: int = 0, latency_ms: float = 1.0, status: str = "ok"
) -> Measurement:
    took_ms = latency_ms if status == "ok" else math.nan
    return Measurement(problem, kernel, status, "", round_, took_ms, 0.9, 0.01, 20, "full", 100)


def row(work: Work, kernel: str, device: str, round_: int = 0, latency_ms: float = 1.0) -> Row:
    one = result(problem_from_id(work.problem), parse_kernel_name(kernel), round_, latency_ms)
    line = {"op": "grouped_conv", "problem": work.problem, "kernel": kernel, "round": one.round}
    line |= {"device": device, "status": one.status, "time": "2026-01-01T00:00:00+00:00"}
    return Row(work.number, one, encode_line(line | {"latency_ms": latency_ms}))


@dataclass
class SimulatedDevice:
    """slow: kernels take this many times longer."""

    name: str
    kind: str = "H200"
    work: Work | None = None
    left: list[str] = field(default_factory=list)
    finals: bool = False
    slow: float = 1.0

    def step(self, count: int) -> list[Message]:
        """Runs up to `count` kernels; ends the assignment after the last."""
        work = self.work
        if work is None:
            return []
        if work.again:
            self.work = None
            rows: list[Message] = [
                row(work, one.kernel.name, self.name, work.again_round) for one in work.again
            ]
            return [*rows, Ended(work.number)]
        ran, self.left = self.left[:count], self.left[count:]
        told: list[Message] = [row(work, name, self.name, 0, 1.0 * self.slow) for name in ran]
        if not self.left:
            self.work = None
            if self.finals:
                swept = dict.fromkeys(
                    [*(one.kernel.name for one in work.known if one.round == 0), *work.kernels]
                )
                told += [row(work, name, self.name, 1) for name in [*swept][:LEADERS]]
            told.append(Ended(work.number))
        return told


class SimulatedEngine(Engine):
    """Also the hand that kills devices."""

    def __init__(self) -> None:
        self.devices: dict[str, SimulatedDevice] = {}
        self.pending: list[Event] = []
        self.dropped: list[tuple[str, bool]] = []
        self.closed = False

    def join(self, name: str, kind: str = "H200", slow: float = 1.0) -> None:
        self.devices[name] = SimulatedDevice(name, kind, slow=slow)
        self.pending.append(Joined(name, Opened(kind, "host")))

    def kill(self, name: str, why: str = "killed", *, died: bool = True) -> None:
        if self.devices.pop(name, None) is not None:
            self.pending.append(Gone(name, why, died))

    def told(self, count: int = 1) -> list[Event]:
        """What has happened once every device has run up to `count` kernels."""
        found, self.pending = self.pending, []
        for device in [*self.devices.values()]:
            if messages := device.step(count):
                found.append(Told(device.name, messages))
        return found

    def events(self, wait_s: float) -> list[Event]:
        found = self.told()
        if not found:
            time.sleep(min(wait_s, 0.01))
        return found

    def assign(self, device: str, work: Work) -> None:
        if device in self.devices:
            one = self.devices[device]
            assert one.work is None
            one.work, one.left, one.finals = work, list(work.kernels), work.finals

    def withdraw(self, device: str, number: int, kernels: Sequence[str]) -> None:
        one = self.devices.get(device)
        if one is not None and one.work is not None and one.work.number == number:
            one.left = [name for name in one.left if name not in kernels]
            one.finals = False

    def drop(self, device: str, *, again: bool) -> None:
        self.devices.pop(device, None)
        self.dropped.append((device, again))

    def close(self) -> None:
        self.closed = True


class NothingToBuild(Builds):
    """Binaries that are all there, but those of `held` problems, until `arrived` names them."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.arrived: list[tuple[str, str]] = []

    def want(self, label: str, problem: Problem, kernels: Iterable[Kernel]) -> list[str]:
        return [kernel.name for kernel in kernels] if label in self.held else []

    def ready(self) -> list[tuple[str, str]]:
        found, self.arrived = self.arrived, []
        return found

    def binaries(self, kernels: Sequence[Kernel], *, remote: bool) -> Binaries:
        return Binaries()


class ListLog:
    """What would be in the journal. fails: an error that the next write raises. earlier: the rows of earlier
    sessions."""

    def __init__(self) -> None:
        self.earlier: list[dict[str, Any]] = []
        self.writes: list[list[bytes]] = []
        self.fails: Exception | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        self.append_lines([encode_line(row)])

    def append_lines(self, lines: Sequence[bytes]) -> None:
        if self.fails is not None:
            raise self.fails
        self.writes.append(list(lines))

    def known(self, problem_id: str) -> list[dict[str, Any]]:
        return [one for one in self.earlier if one["problem"] == problem_id]

    @property
    def rows(self) -> list[dict[str, Any]]:
        found = [decode_line(line.rstrip(b"\n")) for write in self.writes for line in write]
        assert None not in found
        return found  # type: ignore[return-value]

    def pairs(self, round_: int = 0) -> Counter[tuple[str, str]]:
        return Counter((one["problem"], one["kernel"]) for one in self.rows if one["round"] == round_)


def recorded(one: Measurement) -> dict[str, Any]:
    return {**one.as_row(), "time": "2026-01-01T00:00:00+00:00"}


class SimulatedFleet:
    """A driver and its engine, stepped by hand; a step takes a second."""

    def __init__(self, sizes: Sequence[int], **options: Any) -> None:
        self.engine, self.log, self.builds = SimulatedEngine(), ListLog(), NothingToBuild()
        self.picked: Collection[Kernel] = ()
        self.kinds: list[str] = []
        """The kinds of devices for which the picks were asked."""
        asked = (self._picks, recorded, SweepSettings())
        self.driver = Driver(self.engine, self.builds, self.log, *asked, **options)
        self.tasks = [
            ProblemTask(problem_from_id(PROBLEMS[number]), KERNELS[:size], float(size))
            for number, size in enumerate(sizes)
        ]
        self.now = 1000.0

    def _picks(self, kind: str) -> Callable[[Problem], Collection[Kernel]]:
        self.kinds.append(kind)
        return lambda problem: self.picked

    def begin(self, *devices: str, **kinds: str) -> None:
        """Begins with these devices. kinds: of further ones."""
        self.driver.plan(self.tasks)
        self.driver._usable_s = self.now
        for name in devices:
            self.engine.join(name)
        for name, kind in kinds.items():
            self.engine.join(name, kind)

    def start(self, *devices: str) -> None:
        """Starts the driver's own thread with these devices."""
        for name in devices:
            self.engine.join(name)
        self.driver.start(self.tasks)

    def step(self, count: int = 1) -> None:
        self.now += 1.0
        self.driver.step(self.engine.told(count), self.now)

    def run(self, most: int = 2000, count: int = 1) -> None:
        for _ in range(most):
            self.step(count)
            if self.driver.is_complete():
                return
        raise AssertionError("the fleet never ends")

    def check(self) -> None:
        """Every pair once, and every problem's leaders once, by one device, in one write."""
        every = Counter((task.problem.id, k.name) for task in self.tasks for k in task.kernels)
        assert self.log.pairs() == every
        finals = self.log.pairs(1)
        for task in self.tasks:
            own = {pair: count for pair, count in finals.items() if pair[0] == task.problem.id}
            assert list(own.values()) == [1] * min(LEADERS, len(task.kernels))
            writes = [
                w
                for w in self.log.writes
                if any(b'"round":1' in li and task.problem.id.encode() in li for li in w)
            ]
            assert len(writes) == bool(own)
            devices = {
                r["device"] for r in self.log.rows if r["round"] == 1 and r["problem"] == task.problem.id
            }
            assert len(devices) <= 1
