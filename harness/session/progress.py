"""Progress of a sweep: a line a problem, with rate and time left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class _Problem:
    planned: int
    done: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    best_tflops: float = 0.0
    best_kernel: str = ""


class Progress:
    """Counts what is reported and says when a problem is complete. Knows nothing of pytest."""

    def __init__(self) -> None:
        self._problems: dict[str, _Problem] = {}
        self._started = time.monotonic()
        self._done_pairs = 0
        self._done_problems = 0

    def plan(self, problem_ids: Iterable[str]) -> None:
        """One id a planned pair."""
        self._problems = {problem: _Problem(planned) for problem, planned in Counter(problem_ids).items()}
        self._started = time.monotonic()

    def finished(self, facts: Mapping[str, object]) -> str | None:
        """Count one pair; returns the line to show when it was its problem's last."""
        problem = self._problems.get(str(facts["problem"]))
        if problem is None:
            return None
        self._done_pairs += 1
        problem.done += 1
        problem.statuses[str(facts["status"])] += 1
        tflops = facts.get("tflops")
        if facts["status"] == "ok" and isinstance(tflops, float) and tflops > problem.best_tflops:
            problem.best_tflops, problem.best_kernel = tflops, str(facts["kernel"])
        if problem.done != problem.planned:
            return None
        self._done_problems += 1
        return self._line(str(facts["problem"]), problem)

    def _line(self, name: str, problem: _Problem) -> str:
        width = len(str(len(self._problems)))
        counts = ", ".join(f"{number} {status}" for status, number in problem.statuses.most_common())
        best = (
            f"best {problem.best_tflops:.4g} TFLOPS {problem.best_kernel}"
            if problem.best_kernel
            else "no ok kernel"
        )
        return (
            f"[{self._done_problems:>{width}}/{len(self._problems)}] {name}  {counts}; {best}  "
            f"({self._rate():.3g} pairs/s, {self.time_left()} left)"
        )

    @property
    def pairs_left(self) -> int:
        """Planned pairs that were not reported."""
        return sum(problem.planned for problem in self._problems.values()) - self._done_pairs

    def _rate(self) -> float:
        return self._done_pairs / max(1e-9, time.monotonic() - self._started)

    def time_left(self) -> str:
        """Estimated from the rate so far, as m:ss or h:mm:ss."""
        seconds = int(self.pairs_left / max(1e-9, self._rate()))
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
