"""Times kernels on a GPU with events. Several runs of a short kernel are timed together, in a graph."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from tile_oracle.device.loaded_run import Launches
from tile_oracle.device.runtime.driver import Driver

_MOST_EVENTS = 257
_SHORT_NS = 250_000.0
"""Kernels shorter than this are timed several at a time, in a graph. A launch from the host takes some
microseconds, in which the device would idle, and two events add 2.5 microseconds to the time between them (on
an H200): 1 % of this."""
_LONG_NS = 4 * _SHORT_NS
"""If the first run takes this long, the kernel is not short, although later runs are faster than the
first."""
_CLEAR_NS = 60_000.0
"""Single runs of at least this length are timed well enough to choose how to time a kernel, and to see
whether a run takes longer when an operand has changed."""
_LOOK_NS = 150_000.0
"""Length of a graph for a quick look. The two events are less than 2 % of it."""
_LOOK_SAMPLES = 2
_ALIKE, _EQUAL = 1.25, 1.05
"""How many times as long as the fastest check run others may take: the first, so that nothing disturbed it;
all, so that all are samples (the precision that a coarse time needs)."""
_LAUNCH_NS, _KNOWN_LAUNCHES = 4_000.0, 31
"""What events and the launch add to the time of a single short run, until looks have shown how much it is
here; and how many of the latest looks count."""
_LEAST_FLUSH_BYTES = 64 << 20
_MOST_REPLAYS = 128
CHANGES = 8


@dataclass
class Timed:
    """How a kernel is timed. graph: 0, or an executable graph of `repeats` runs.

    changed_ns: time of a run when the operands change before each run.
    """

    launches: Launches
    graph: int
    repeats: int
    changed_ns: float = math.inf


class GpuTimer:
    """Times kernels with the device's events.

    cold_cache: whether the caches are flushed before each run. timed_ms: total time of all timed runs so far.
    """

    def __init__(self, driver: Driver, cache_bytes: int) -> None:
        """`cache_bytes`: total size of the caches, for runs with cold caches."""
        self._driver = driver
        self.cold_cache = False
        self.timed_ms = 0.0
        self._flush_bytes = max(_LEAST_FLUSH_BYTES, 2 * cache_bytes)
        self._flush = 0
        self._change_took_ns: float | None = None
        self._events: list[int] = []
        self._marks: list[int] = []
        self._added_ns = deque([_LAUNCH_NS], _KNOWN_LAUNCHES)
        """What the latest check runs of short kernels took longer than the same runs in a graph."""

    def mark(self, number: int) -> None:
        """Records the time at this point as mark `number`."""
        while len(self._marks) <= number:
            self._marks.append(self._driver.make_event())
        self._driver.record(self._marks[number])

    def between_marks_ns(self, count: int) -> list[float]:
        """Nanoseconds from marks 0 to 1, 2 to 3, and so on: `count` of them, which must be over."""
        return [self._driver.elapsed_ns(self._marks[2 * i : 2 * i + 2])[0] for i in range(count)]

    def of_checks(self, checked_ns: Sequence[float]) -> list[float]:
        """Returns the times of a long kernel's check runs that will do for a quick look; none: it needs runs
        of its own.

        checked_ns: of all check runs. The first has the operands of timed runs. If it took longer than the
        others, the kernel was being loaded, or something disturbed it. The others count, too, if all agree:
        their operands are no faster then, and two samples say how precise they are.
        """
        least_ns = min(checked_ns)
        if self.cold_cache or least_ns < _LONG_NS or checked_ns[0] > _ALIKE * least_ns:
            return []
        taken = list(checked_ns) if max(checked_ns) <= _EQUAL * least_ns else [checked_ns[0]]
        self.timed_ms += sum(taken) / 1e6
        return taken

    def for_look(self, launches: Launches, checked_ns: float) -> Timed:
        """Returns how a kernel is timed for a quick look. checked_ns: how long its fastest check run took."""
        if checked_ns >= _SHORT_NS or self.cold_cache:
            return Timed(launches, 0, 1, checked_ns)
        rough_ns = max(1000.0, checked_ns - statistics.median(self._added_ns))
        repeats = min(_MOST_REPLAYS, math.ceil(_LOOK_NS / rough_ns))
        return Timed(launches, self._driver.capture(launches, repeats), repeats, checked_ns)

    def look(
        self, timer: Timed, count: int, renew: Callable[[], None], wait: Callable[[], None]
    ) -> npt.NDArray[np.float64]:
        """Like `time`, for a timer of `for_look`. renew: changes operands and poisons the output.

        A short kernel is run first as a warm-up.
        """
        if timer.changed_ns >= _LONG_NS:
            renew()
            return self.time(timer, count, wait)
        self.mark(0)
        self._start(timer)
        self.mark(1)
        renew()
        taken = self.time(timer, max(count, _LOOK_SAMPLES), wait)
        self.timed_ms += sum(self.between_marks_ns(1)) / 1e6
        if timer.graph:
            self._added_ns.append(timer.changed_ns - float(taken.min()))
        return taken

    def _start(self, timer: Timed) -> None:
        """Starts one graph, or one run."""
        if timer.graph:
            self._driver.launch_graph(timer.graph)
        else:
            self._driver.launch_all(timer.launches)

    def prepare(self, launches: Launches, changes: Sequence[Launches], *, sure: bool = False) -> Timed:
        """Estimates how long the kernel runs, and chooses how to time it.

        changes: CHANGES times launches that change the operands. sure: do not trust the time of single runs,
        in which the device may idle because a busy host or a library launches late.
        """
        rough_ns = min(self._single_ns(launches, changes[:1]))
        if rough_ns < _LONG_NS:
            # Changing large operands takes longer than the kernel.
            more = changes[1:4] if rough_ns < _CLEAR_NS else changes[1:2]
            rough_ns = min(rough_ns, *self._single_ns(launches, more))
        # A graph would warm the caches for its own runs.
        if self.cold_cache or rough_ns >= (_LONG_NS if sure else _SHORT_NS):
            return Timed(launches, 0, 1, rough_ns)
        short_ns = changed_ns = rough_ns
        if sure:
            short_ns = changed_ns = self._changed_ns(launches, changes)
        elif rough_ns < _CLEAR_NS:
            # The operands do not change here: that may take much longer than the kernel.
            short_ns = max(100.0, self._in_a_graph([launches] * len(changes)))
        if short_ns >= _SHORT_NS:
            return Timed(launches, 0, 1, changed_ns)
        repeats = max(1, min(_MOST_REPLAYS, math.ceil(_SHORT_NS / short_ns)))
        return Timed(launches, self._driver.capture(launches, repeats), repeats, changed_ns)

    def _single_ns(self, launches: Launches, changes: Sequence[Launches]) -> list[float]:
        """Returns the time of single runs, before each of which the operands change."""
        for number, change in enumerate(changes):
            self._driver.launch_all(change)
            self.mark(2 * number)
            self._driver.launch_all(launches)
            self.mark(2 * number + 1)
        self._driver.synchronize()
        taken = self.between_marks_ns(len(changes))
        self.timed_ms += sum(taken) / 1e6
        return taken

    def _changed_ns(self, launches: Launches, changes: Sequence[Launches]) -> float:
        """Returns the time of a run that is so short that events and the launch of a single one would
        show."""
        several = self._in_a_graph([(*change, *launches) for change in changes])
        if self._change_took_ns is None:
            self._change_took_ns = self._in_a_graph(changes)
        return max(100.0, several - self._change_took_ns)

    def _in_a_graph(self, runs: Sequence[Launches]) -> float:
        """Returns the least mean time of runs that are launched together."""
        together = tuple(chain(*runs))
        timer = Timed(together, self._driver.capture(together, 1), len(runs))
        self.time(timer, 1)
        taken = float(self.time(timer, 3).min())
        self._driver.destroy_graph(timer.graph)
        return taken

    def span_ns(self, timer: Timed, wanted_ns: float, stamp: Callable[[int], None]) -> float:
        """Returns the time of as many graphs or runs in a row as take about `wanted_ns`. stamp: notes the
        time by another clock, before (0) and after them (1)."""
        starts = max(1, math.ceil(wanted_ns / (timer.repeats * min(timer.changed_ns, wanted_ns))))
        stamp(0)
        self.mark(0)
        for _ in range(starts):
            self._start(timer)
        self.mark(1)
        stamp(1)
        self._driver.synchronize()
        return self.between_marks_ns(1)[0]

    def forget(self, timer: Timed | None) -> None:
        """Frees the graph of a timer that is no longer used."""
        if timer is not None and timer.graph:
            self._driver.destroy_graph(timer.graph)

    def forget_changes(self) -> None:
        """Forgets how long changes take: those of another problem take another time."""
        self._change_took_ns = None

    def time(
        self, timer: Timed, count: int, wait: Callable[[], None] | None = None
    ) -> npt.NDArray[np.float64]:
        """Nanoseconds of each of `count` runs, or the mean over the runs of each of `count` graphs.

        wait: waits for the device, and may have more done on it before (default: only waits).
        """
        wait = wait or self._driver.synchronize
        if self.cold_cache:
            return self._time_cold(timer, count, wait)
        driver, taken = self._driver, list[float]()
        while len(taken) < count:
            runs = min(count - len(taken), _MOST_EVENTS - 1)
            while len(self._events) <= runs:
                self._events.append(driver.make_event())
            driver.record(self._events[0])
            for event in self._events[1 : runs + 1]:
                self._start(timer)
                driver.record(event)
            wait()
            taken += driver.elapsed_ns(self._events[: runs + 1])
        self.timed_ms += sum(taken) / 1e6
        return np.array(taken) / timer.repeats

    def _time_cold(self, timer: Timed, count: int, wait: Callable[[], None]) -> npt.NDArray[np.float64]:
        """Like `time`, but flushes the caches before each run, outside the timed interval."""
        driver, taken = self._driver, list[float]()
        if not self._flush:
            self._flush = driver.allocate(self._flush_bytes)
        while len(taken) < count:
            runs = min(count - len(taken), _MOST_EVENTS // 2)
            for run in range(runs):
                driver.set_bytes(self._flush, run % 256, self._flush_bytes)
                self.mark(2 * run)
                driver.launch_all(timer.launches)
                self.mark(2 * run + 1)
            wait()
            taken += self.between_marks_ns(runs)
        self.timed_ms += sum(taken) / 1e6
        return np.array(taken)
