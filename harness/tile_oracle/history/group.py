"""Runs that can be compared as one series, and what changed from one to the next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.history.steps import Step, find_steps
from tile_oracle.history.summary import MADE_BY, RunSummary
from tile_oracle.model.store import MANY_DEVICES

Array = npt.NDArray[np.float64]

PICK, ORACLE = "pick", "oracle"
_KERNELS = {PICK: "pick_kernel", ORACLE: "oracle_kernel"}


@dataclass(frozen=True)
class Figure:
    """One figure of every run. name: the field of RunSummary, or "speed"."""

    name: str
    title: str
    unit: str
    digits: int


FIGURES = (
    Figure("mean", "mean efficiency", "%", 2),
    Figure("median", "median efficiency", "%", 2),
    Figure("p10", "P10 efficiency", "%", 2),
    Figure("worst", "worst efficiency", "%", 2),
    Figure("coverage", "coverage", "%", 2),
    Figure("speed", "speed of the oracles", "%", 2),
    Figure("device_hours", "device hours", "h", 3),
    Figure("pairs_per_s", "pairs per second", "/s", 2),
)
JUDGED = ("mean", "median", "p10", "worst", "speed", "pairs_per_s")
"""The figures that are searched for steps."""


@dataclass(frozen=True)
class Mark:
    """A change of device, driver, compiler, sources or model since the run before. at: index of the run."""

    at: int
    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Change:
    """A problem whose pick or oracle is another kernel than in the run before that knew it. tflops: of the
    oracle, efficiency: of the pick (fraction), before and after; NaN if unknown."""

    at: int
    problem: str
    what: str
    before: str
    after: str
    efficiency: tuple[float, float]
    tflops: tuple[float, float]


@dataclass(frozen=True)
class Trend:
    """One figure's steps. at: the indices of the runs that have it."""

    figure: Figure
    at: Sequence[int]
    steps: Sequence[Step]


@dataclass(frozen=True)
class Group:
    """Runs of one problem set, kernel set and architecture, oldest first, all measured or all replayed."""

    problem_set: str
    kernel_set: str
    target: str
    replayed: bool
    runs: Sequence[RunSummary]

    @property
    def title(self) -> str:
        parts = [
            self.problem_set or "?",
            self.target,
            f"kernel set {self.kernel_set}" if self.kernel_set else "",
        ]
        return ", ".join(part for part in parts if part) + (", replayed" if self.replayed else "")

    @property
    def hours(self) -> str:
        """What the device hours count."""
        return "core hours" if self.target == MANY_DEVICES else "GPU hours"

    @cached_property
    def speed(self) -> Sequence[float | None]:
        """Geometric mean of the oracles' TFLOPS of each run, percent of the first run with oracles, over the
        problems of both. It falls when the device or all kernels become slower, which efficiency hides."""
        logs = pd.DataFrame({at: _log_tflops(run) for at, run in enumerate(self.runs)})
        of_run = logs.dropna(axis=1, how="all")
        changes = logs.sub(of_run.iloc[:, 0], axis=0).mean() if of_run.size else logs.mean()
        return [100.0 * math.exp(change) if math.isfinite(change) else None for change in changes]

    def values(self, figure: Figure) -> Sequence[float | None]:
        """Returns a figure of every run."""
        if figure.name == "speed":
            return self.speed
        return [getattr(run, figure.name) for run in self.runs]

    @cached_property
    def trends(self) -> Sequence[Trend]:
        """The figures with their steps, of the complete runs."""
        found = []
        for figure in FIGURES:
            if figure.name not in JUDGED:
                continue
            pairs = [
                (at, value)
                for at, value in enumerate(self.values(figure))
                if value is not None and math.isfinite(value) and self.runs[at].complete
            ]
            values = np.array([value for _, value in pairs], dtype=np.float64)
            found.append(Trend(figure, [at for at, _ in pairs], find_steps(values)))
        return found

    @cached_property
    def marks(self) -> Sequence[Mark]:
        """Where device, driver, toolchain, sources or model changed."""
        found = []
        last: dict[str, str] = {}
        for at, run in enumerate(self.runs):
            for what in MADE_BY:
                now = getattr(run, what)
                if now and last.get(what, now) != now:
                    found.append(Mark(at, what, last[what], now))
                if now:
                    last[what] = now
        return found

    @cached_property
    def changes(self) -> Sequence[Change]:
        """Every change of a problem's pick or oracle, oldest first."""
        tables = {at: run.choices for at, run in enumerate(self.runs) if len(run.choices)}
        if not tables:
            return []
        rows = pd.concat(tables, names=["at"]).reset_index("at").reset_index(drop=True)
        last = rows.groupby("problem", sort=False)[["efficiency", "oracle_tflops"]].shift()
        rows = rows.join(last.add_suffix("_before"))
        found = []
        for what, column in _KERNELS.items():
            known = rows[rows[column].notna()]
            known = known.assign(kernel_before=known.groupby("problem", sort=False)[column].shift())
            moved = known[known["kernel_before"].notna() & (known["kernel_before"] != known[column])]
            found += [
                Change(
                    one["at"],
                    one["problem"],
                    what,
                    one["kernel_before"],
                    one[column],
                    (one["efficiency_before"], one["efficiency"]),
                    (one["oracle_tflops_before"], one["oracle_tflops"]),
                )
                for one in moved.to_dict("records")
            ]
        return sorted(found, key=lambda change: change.at)

    @cached_property
    def changed_by_run(self) -> Counter[tuple[int, str]]:
        """(index of the run, "pick" or "oracle") -> problems that changed."""
        return Counter((change.at, change.what) for change in self.changes)


def groups_of(runs: Sequence[RunSummary]) -> list[Group]:
    """Returns the groups, sorted by problem set. Nights without a run join a measured group of their set,
    those without a verdict all."""
    sorted_runs: dict[tuple[str, str, str, bool], list[RunSummary]] = {}
    for run in runs:
        if run.folder:
            key = (run.problem_set, run.kernel_set, run.target, run.replayed)
            sorted_runs.setdefault(key, []).append(run)
    for run in runs:
        if not run.folder:
            fits = [key for key in sorted_runs if key[0] == run.problem_set and not key[3]]
            fits = [key for key in fits if any(one.device == run.device for one in sorted_runs[key])] or fits
            # A night that ended before any verdict belongs to every set.
            fits = fits[:1] if run.problem_set else [key for key in sorted_runs if not key[3]]
            for key in fits or [(run.problem_set, "", "", False)]:
                sorted_runs.setdefault(key, []).append(run)
    return [
        Group(*key, runs=sorted(members, key=lambda run: (run.when, run.folder)))
        for key, members in sorted(sorted_runs.items())
    ]


def _log_tflops(run: RunSummary) -> pd.Series:
    """Problem -> logarithm of its oracle's speed."""
    speed = run.choices.set_index("problem")["oracle_tflops"]
    return np.log(speed.where(speed > 0))
