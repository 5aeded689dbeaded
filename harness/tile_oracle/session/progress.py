"""Progress of a sweep: one line per problem, with rate and time left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

_NOT_GOOD = ("build_error", "wrong", "flaky", "crash", "timeout", "device_lost")
_LEAST_SUBJECT = 12
"""A problem's name that is cut shorter tells nothing."""


@dataclass
class _Problem:
    waiting: set[str]
    statuses: Counter[str] = field(default_factory=Counter)
    best_tflops: float = 0.0
    best_kernel: str = ""


@dataclass(frozen=True)
class ProgressLine:
    """A complete problem. parts: place and name, counts, best, pace, name of the best kernel."""

    parts: tuple[str, ...]
    failures: int

    def fitting(self, width: int | None) -> str:
        """The line, cut after as many parts as fit into `width` characters."""
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

    def __init__(self) -> None:
        self._replayed: int | None = None
        self._last_s: float | None = None
        self._weight_of: dict[str, float] = {}
        self._weight_left = self._weight_measured = 0.0
        self._problems: dict[str, _Problem] = {}
        self._started = time.monotonic()
        self._planned_pairs = 0
        self._done_pairs = 0
        self._measured_pairs = 0
        self._done_problems = 0
        self._unpaced_pairs, self._unpaced_weight = 0, 0.0

    def replay(self, problems: int) -> None:
        """Replays this many problems: nothing is built or measured."""
        self._replayed = problems

    def ended(self) -> None:
        """Counts a replayed problem."""
        self._done_problems += self._replayed is not None

    def plan(self, pairs: Iterable[tuple[str, str]], times: Mapping[str, float] | None = None) -> None:
        """Problem id and kernel name of each pair, in any order. times: the expected time of a pair of each
        problem, in a relative unit; without it all pairs take equally long."""
        for problem, kernel in pairs:
            self._problems.setdefault(problem, _Problem(set())).waiting.add(kernel)
        self._planned_pairs = sum(len(problem.waiting) for problem in self._problems.values())
        self._weight_of = {name: (times or {}).get(name, 1.0) for name in self._problems}
        self._weight_left = sum(
            len(problem.waiting) * self._weight_of[name] for name, problem in self._problems.items()
        )
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
        measured = not facts.get("resumed", False)
        self._measured_pairs += measured
        self._weight_left -= self._weight_of[name]
        self._weight_measured += self._weight_of[name] if measured else 0.0
        self._last_s = time.monotonic() if measured else self._last_s
        if measured and self._measured_pairs == 1 and self.builds is not None:
            self._begin_pace(self._weight_of[name])
        problem.statuses[str(facts["status"])] += 1
        tflops = facts.get("tflops")
        if facts["status"] == "ok" and isinstance(tflops, float) and tflops > problem.best_tflops:
            problem.best_tflops, problem.best_kernel = tflops, kernel
        if problem.waiting:
            return None
        self._done_problems += 1
        return self._line(name, problem)

    def _begin_pace(self, weight: float) -> None:
        """Counts from the first pair on, which waited for the compiler."""
        self._started = time.monotonic() if self._last_s is None else self._last_s
        self._unpaced_pairs, self._unpaced_weight = 1, weight

    def _line(self, name: str, problem: _Problem) -> ProgressLine:
        counts = ", ".join(f"{number} {status}" for status, number in problem.statuses.most_common())
        best = f"best {problem.best_tflops:.4g} TFLOPS" if problem.best_kernel else "no ok kernel"
        parts = (f"{self._count()} {name}", counts, best, self._pace(), problem.best_kernel)
        return ProgressLine(parts, sum(problem.statuses[status] for status in _NOT_GOOD))

    def status(self, subject: str, width: int | None = None) -> str:
        """The current state, for a line that is rewritten in place. subject: what is being tested; it is
        shortened where the line is wider than `width`, so that the time left is seen."""
        if self._replayed is not None:
            digits = len(str(self._replayed))
            return f"[{self._done_problems:>{digits}}/{self._replayed}] {subject}  replaying"
        head = self._count()
        tail = f"{self._done_pairs:,} of {self._planned_pairs:,} pairs  {self._pace()}"
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
        if self._measured_pairs == self._unpaced_pairs:
            return "measuring"
        return f"{self._rate():.3g} pairs/s  {self.time_left()} left"

    def _building(self) -> str:
        """How many kernels are built while the first pair waits for its own."""
        done, wanted = (0, 0) if self.builds is None else self.builds()
        if not 0 < done < wanted:
            return "building kernels"
        elapsed_s = time.monotonic() - self._started
        return f"built {done:,} of {wanted:,} kernels  {clock(elapsed_s * (wanted - done) / done)} left"

    @property
    def pairs_left(self) -> int:
        """The number of planned pairs not reported yet."""
        return self._planned_pairs - self._done_pairs

    def _rate(self) -> float:
        # Pairs from an earlier session take no time, so they do not predict the rest.
        last_s = self._started if self._last_s is None else self._last_s
        return (self._measured_pairs - self._unpaced_pairs) / max(1e-9, last_s - self._started)

    def time_left(self) -> str:
        """Estimated from the expected and the measured times so far, as m:ss or h:mm:ss. Does not grow while
        a pair takes its time."""
        last_s = self._started if self._last_s is None else self._last_s
        weight = self._weight_measured - self._unpaced_weight
        per_weight_s = (last_s - self._started) / max(1e-9, weight)
        return clock(max(0.0, self._weight_left * per_weight_s - (time.monotonic() - last_s)))


def clock(duration_s: float) -> str:
    """A time as m:ss or h:mm:ss."""
    minutes, seconds = divmod(int(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
