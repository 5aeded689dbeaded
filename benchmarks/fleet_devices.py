"""Simulated devices for benchmarks of a fleet's driver: they answer at once, with rows of full size."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import Binaries, Ended, Message, Opened, Row, Work
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.engine import Engine, Event, Joined, Told
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.journal import encode_line
from tools.faults.flippable.records import some_rows


class NothingToBuild(Builds):
    """Binaries that are all there."""

    def __init__(self) -> None:
        pass

    def want(self, label: str, problem: Problem, kernels: object) -> list[str]:
        return []

    def ready(self) -> list[tuple[str, str]]:
        return []

    def binaries(self, kernels: Sequence[Kernel], *, remote: bool) -> Binaries:
        return Binaries()


class FastDevices(Engine):
    """An engine whose devices tell `batch` results whenever they are asked."""

    def __init__(self, count: int, batch: int = 20) -> None:
        self._batch = batch
        self._left: dict[str, tuple[Work, list[str]]] = {}
        self._joined = [Joined(f"d{n}", Opened("H200", "host")) for n in range(count)]
        self._row = some_rows(1)[0] | {"detail": ""}
        self._problems: dict[str, dict[str, Any]] = {}

    def events(self, wait_s: float) -> list[Event]:
        found: list[Event] = [*self._joined]
        self._joined = []
        for device, (work, left) in [*self._left.items()]:
            told: list[Message] = [
                Row(work.number, self._result(work, name, len(left) + 0.5), self._line(work, name))
                for name in left[: self._batch]
            ]
            del left[: self._batch]
            if not left:
                del self._left[device]
                told.append(Ended(work.number))
            found.append(Told(device, told))
        return found

    def _result(self, work: Work, kernel: str, latency_ms: float) -> Measurement:
        problem, named = problem_from_id(work.problem), parse_kernel_name(kernel)
        return Measurement(problem, named, "ok", "", 0, latency_ms, 0.0121, 0.004, 60, "full", 100_000)

    def _line(self, work: Work, kernel: str) -> bytes:
        if work.problem not in self._problems:
            problem = problem_from_id(work.problem)
            tflops = problem.flops / self._row["latency_ms"] / 1e9
            self._problems = {work.problem: problem.as_row() | {"tflops": tflops}} | dict(
                [*self._problems.items()][:500]
            )
        own = self._problems[work.problem] | {"problem": work.problem, "kernel": kernel}
        return encode_line(self._row | own | self._fields(kernel))

    @staticmethod
    @cache
    def _fields(kernel: str) -> dict[str, Any]:
        return parse_kernel_name(kernel).as_row()

    def assign(self, device: str, work: Work) -> None:
        self._left[device] = work, list(work.kernels)

    def withdraw(self, device: str, number: int, kernels: Sequence[str]) -> None:
        if device in self._left and self._left[device][0].number == number:
            work, left = self._left[device]
            self._left[device] = work, [name for name in left if name not in set(kernels)]

    def drop(self, device: str, *, again: bool) -> None:
        self._left.pop(device, None)

    def close(self) -> None:
        self._left.clear()


def makespan_s(durations_s: Sequence[Sequence[float]], devices: int, seed: int = 1) -> tuple[float, float]:
    """Seconds that a fleet takes for problems with these seconds a kernel, and the lower bound: the mean work
    of a device, or the longest kernel. The dispatcher decides, devices only take their time."""
    from tile_oracle.measure.dispatcher import Assign, Dispatcher, Task, Withdraw

    names = [[f"k{k}" for k in range(len(one))] for one in durations_s]
    order = list(range(len(durations_s)))
    random.Random(seed).shuffle(order)
    dispatcher = Dispatcher()
    for n in order:
        dispatcher.add(Task(f"p{n}", names[n], sum(durations_s[n])))
    for n in range(devices):
        dispatcher.joined(f"d{n}")
    work: dict[str, tuple[int, int, list[str]]] = {}
    ends: list[tuple[float, int, str, int]] = []
    now, ticks = 0.0, 0

    def begin(device: str) -> None:
        nonlocal ticks
        number, problem, left = work[device]
        ticks += 1
        seconds = durations_s[problem][int(left[0][1:])] if left else 0.0
        heapq.heappush(ends, (now + seconds, ticks, device, number))

    asks = True
    while not dispatcher.complete:
        for one in dispatcher.orders(now) if asks or not ticks % 100 else ():
            if isinstance(one, Assign):
                work[one.device] = one.number, int(one.problem[1:]), list(one.kernels)
                begin(one.device)
            elif isinstance(one, Withdraw):
                number, problem, left = work[one.device]
                gone = set(one.kernels)
                work[one.device] = number, problem, left[:1] + [k for k in left[1:] if k not in gone]
        now, _, device, number = heapq.heappop(ends)
        there, problem, left = work[device]
        if there != number:
            continue
        if left:
            dispatcher.finished(device, number, left.pop(0))
        asks = not left
        if left:
            begin(device)
        else:
            del work[device]
            dispatcher.ended(device, number)
    total = sum(map(sum, durations_s))
    return now, max(total / devices, max(max(one, default=0.0) for one in durations_s))
