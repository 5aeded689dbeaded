"""Progress of a sweep: one line per problem, with rate and time left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tile_oracle.session.time_left import Measured, Work, beyond_s, fit_pair_time, time_left_s
from tile_oracle.terminal.progress_line import clock

_NOT_GOOD = ("build_error", "wrong", "flaky", "crash", "timeout", "device_lost")
_MUCH_LONGER = 1.2
"""A time left is a range where its ends are this much apart."""
_LEAST_SUBJECT = 12
"""A problem's name that is cut shorter tells nothing."""


@dataclass
class _Problem:
    """flops: of one pair. paced, paced_s: number and time of the pairs that count for the pace."""

    waiting: set[str]
    flops: float = 0.0
    paced: int = 0
    paced_s: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    best_tflops: float = 0.0
    best_kernel: str = ""


@dataclass(frozen=True)
class ProgressLine:
    """A complete problem. parts: place and name, counts, best, pace, name of the best kernel."""

    parts: tuple[str, ...]
    failures: int

    def fitting(self, width: int | None) -> str:
        """Returns the line, cut after as many parts as fit into `width` characters."""
        shown = list(filter(None, self.parts))
        while width is not None and len(shown) > 2 and len("  ".join(shown)) > width:
            shown.pop()
        return "  ".join(shown)


class Progress:
    """Counts reported pairs and returns a line when a problem is complete.

    A pair counts once, however many tests request it; pairs outside the plan do not count.
    """

    builds: Callable[[], tuple[int, int]] | None = None
    """How many kernels are built, and how many are wanted; None where nobody counts."""
    devices: Callable[[], str] = staticmethod(lambda: "")
    """How many devices there are, in words."""

    def __init__(self) -> None:
        self._replayed: int | None = None
        self._last_s: float | None = None
        self._problems: dict[str, _Problem] = {}
        self._started = time.monotonic()
        self._planned_pairs = 0
        self._done_pairs = 0
        self._measured_pairs = self._paced_pairs = 0
        self._done_problems = 0
        self._measured: list[Measured] = []
        """The complete problems."""
        self._expected = fit_pair_time(())

    def replay(self, problems: int) -> None:
        """Replays this many problems: nothing is built or measured."""
        self._replayed = problems

    def ended(self) -> None:
        """Counts a replayed problem."""
        self._done_problems += self._replayed is not None

    def plan(self, pairs: Iterable[tuple[str, str]], flops: Mapping[str, float] | None = None) -> None:
        """Problem id and kernel name of each pair, in any order. flops: the operations of each problem;
        without them all pairs are expected to take equally long."""
        for problem, kernel in pairs:
            self._problems.setdefault(problem, _Problem(set())).waiting.add(kernel)
        for name, one in self._problems.items():
            one.flops = (flops or {}).get(name, 0.0)
        self._planned_pairs = sum(len(problem.waiting) for problem in self._problems.values())
        self._started = time.monotonic()

    def finished(self, facts: Mapping[str, object]) -> ProgressLine | None:
        """Counts one pair; returns the line to show if it was the last one of its problem.

        facts: problem, kernel, status; tflops if known; resumed if an earlier session measured the pair.
        """
        name, kernel = str(facts["problem"]), str(facts["kernel"])
        problem = self._problems.get(name)
        if problem is None or kernel not in problem.waiting:
            return None
        problem.waiting.remove(kernel)
        self._done_pairs += 1
        if not facts.get("resumed", False):
            self._pace_pair(problem)
        problem.statuses[str(facts["status"])] += 1
        tflops = facts.get("tflops")
        if facts["status"] == "ok" and isinstance(tflops, float) and tflops > problem.best_tflops:
            problem.best_tflops, problem.best_kernel = tflops, kernel
        if problem.waiting:
            return None
        self._done_problems += 1
        if problem.paced:
            self._measured.append(Measured(problem.paced, problem.flops, problem.paced_s))
            self._expected = fit_pair_time(self._measured)
        return self._line(name, problem)

    def _pace_pair(self, problem: _Problem) -> None:
        """Counts a measured pair for the pace, from the first one on, which waited for the compiler. It took
        the time since the pair before it."""
        before, now = self._last_s, time.monotonic()
        self._measured_pairs, self._last_s = self._measured_pairs + 1, now
        if self._measured_pairs == 1 and self.builds is not None:
            self._started = now
            return
        since = self._started if before is None else before
        problem.paced += 1
        problem.paced_s += now - since
        self._paced_pairs += 1

    def _line(self, name: str, problem: _Problem) -> ProgressLine:
        counts = ", ".join(f"{number} {status}" for status, number in problem.statuses.most_common())
        none = "not timed" if problem.statuses["untimed"] else "no ok kernel"
        best = f"best {problem.best_tflops:.4g} TFLOPS" if problem.best_kernel else none
        parts = (f"{self._count()} {name}", counts, best, self._pace(), problem.best_kernel)
        return ProgressLine(parts, sum(problem.statuses[status] for status in _NOT_GOOD))

    def status(self, subject: str, width: int | None = None) -> str:
        """Returns the current state, for a line that is rewritten in place. subject: what is being tested; it
        is shortened where the line is wider than `width`, so that the time left is seen."""
        if self._replayed is not None:
            digits = len(str(self._replayed))
            return f"[{self._done_problems:>{digits}}/{self._replayed}] {subject}  replaying"
        head = self._count()
        pairs = f"{self._done_pairs:,} of {self._planned_pairs:,} pairs"
        tail = "  ".join(filter(None, (pairs, self._pace(), self.devices())))
        room = len(subject) if width is None else width - len(f"{head}   {tail}")
        if room < len(subject):
            subject = f"{subject[: room - 3]}..." if room > _LEAST_SUBJECT else ""
        return "  ".join(filter(None, (f"{head} {subject}".strip(), tail)))

    def _count(self) -> str:
        width = len(str(len(self._problems)))
        return f"[{self._done_problems:>{width}}/{len(self._problems)}]"

    def _pace(self) -> str:
        if not self._measured_pairs:
            return "resumed" if self._done_pairs else self._building()
        if not self._paced_pairs:
            return "measuring"
        return f"{self._rate():.3g} pairs/s  {self.time_left()} left"

    def _building(self) -> str:
        """Returns how many kernels are built while the first pair waits for its own."""
        done, wanted = (0, 0) if self.builds is None else self.builds()
        if not 0 < done < wanted:
            return "building kernels"
        elapsed_s = time.monotonic() - self._started
        return f"built {done:,} of {wanted:,} kernels  {clock(elapsed_s * (wanted - done) / done)} left"

    def _rate(self) -> float:
        # Pairs from an earlier session take no time, so they do not predict the rest.
        last_s = self._started if self._last_s is None else self._last_s
        return self._paced_pairs / max(1e-9, last_s - self._started)

    def time_left(self) -> str:
        """Estimated from the measured pairs, as m:ss or h:mm:ss, or as a range while larger problems are left
        than were measured. Does not grow while a pair takes its time."""
        last_s = self._started if self._last_s is None else self._last_s
        problems = self._problems.values()
        done = [Work(one.paced, one.flops) for one in problems if one.paced]
        left = [Work(len(one.waiting), one.flops) for one in problems if one.waiting]
        elapsed_s, since_s = last_s - self._started, time.monotonic() - last_s
        least_s = max(0.0, time_left_s(self._expected, done, left, elapsed_s) - since_s)
        largest = max((one for one in problems if one.paced), key=lambda one: one.flops, default=None)
        if largest is None:
            return clock(least_s)
        most_s = least_s + beyond_s(left, largest.flops, largest.best_tflops)
        return clock(least_s) if most_s <= _MUCH_LONGER * least_s else f"{clock(least_s)} to {clock(most_s)}"
