"""How long a session will take, before it begins: from what earlier runs took here, else from the peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.arch.time_bound import Limits, gpu_limits
from tile_oracle.errors import HarnessError
from tile_oracle.problem import Problem
from tile_oracle.record.dataset import measurements_folder
from tile_oracle.record.journal import parts_in
from tile_oracle.record.sealed_parquet import read_table
from tile_oracle.session.time_left import RUNS_OF_LONG, Measured, Work, fit_pair_time
from tile_oracle.targets.cpu_info import cpu_peak_flops
from tile_oracle.targets.target import Target
from tile_oracle.terminal.counts import count

LONG_S = 600.0
"""A session that may take longer says so in its header."""
_CPU_PAIR_S, _GPU_PAIR_S = (0.02, 0.25), (0.003, 0.02)
"""Least and most seconds of a pair of a small problem: launches, checks, samples, records."""
_SHARE_OF_PEAK = (0.5, 0.03)
"""Most and least of the peak rate that the kernels of a pool reach in the mean."""
_SHORTER, _LONGER = 0.7, 1.5
"""What a session may take, as shares of what earlier runs took for as much work."""
_EARLIER_RUNS, _PAUSE_S = 3, 120.0
"""How many runs, the newest ones, are asked; a longer time between two rows was no measuring."""


@dataclass(frozen=True)
class Forecast:
    """Seconds, at least and at most. by: from what, in words."""

    least_s: float
    most_s: float
    by: str

    def of(self, workers: int) -> Forecast:
        """That of several workers, each with a device of its own."""
        return Forecast(self.least_s / workers, self.most_s / workers, self.by)

    def describe(self) -> str:
        """In one line, rounded as it is known."""
        return f"this may take {_spoken(self.least_s)} to {_spoken(self.most_s)}, by {self.by}"


def forecast(problems: Sequence[tuple[Problem, int]], target: Target, reports: Path) -> Forecast:
    """problems: with the number of their kernels. reports: the folder of earlier runs."""
    by_peak = _by_peak(problems, target)
    if by_peak.most_s < LONG_S:
        return by_peak
    earlier, runs = _earlier(reports, target.name)
    if not earlier:
        return by_peak
    expected = fit_pair_time(earlier)
    whole_s = expected.of_all(Work(pairs, problem.flops) for problem, pairs in problems)
    # What is larger than all that was measured takes longer, by as much as the slope or the peaks say.
    larger = [(problem, pairs) for problem, pairs in problems if problem.flops > expected.most_flops]
    slope_s = sum(pairs * expected.per_flop * (one.flops - expected.most_flops) for one, pairs in larger)
    most_s = _LONGER * whole_s + max(slope_s, _by_peak(larger, target).most_s)
    return Forecast(_SHORTER * whole_s, most_s, f"what {count(runs, 'earlier run')} took on this target")


def _by_peak(problems: Sequence[tuple[Problem, int]], target: Target) -> Forecast:
    on_cpu = target.name == "cpu" or target.interpreted
    limits = Limits(cpu_peak_flops()) if on_cpu else _limits_of(target.arch)
    bounds = []
    for pair_s, share in zip(_CPU_PAIR_S if on_cpu else _GPU_PAIR_S, _SHARE_OF_PEAK, strict=True):
        seconds = 0.0
        for problem, pairs in problems:
            peak = limits.flops_per_s.get(problem.dtype, 0.0)
            long_s = RUNS_OF_LONG * problem.flops / (share * peak) if peak else 0.0
            seconds += pairs * (pair_s + long_s)
        bounds.append(seconds)
    return Forecast(bounds[0], bounds[1], "the peak rates of this target; nothing was measured here before")


def _limits_of(arch: str) -> Limits:
    try:
        return gpu_limits(arch, 0)
    except HarnessError:
        return Limits()


def _earlier(reports: Path, target: str) -> tuple[list[Measured], int]:
    """Returns what the problems of the newest runs on a target took, and the number of these runs."""
    import pandas as pd

    from tile_oracle.problem import problem_from_id

    found, runs = list[Measured](), 0
    folders = [one for one in reports.glob("*") if measurements_folder(one).is_dir()]
    for folder in sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True):
        try:
            tables = [
                read_table(part, ["problem", "time", "target"]).to_pandas()
                for part in parts_in(measurements_folder(folder))
            ]
        except (HarnessError, OSError):
            continue  # whoever reads this run learns why
        rows = pd.concat(tables) if tables else pd.DataFrame()
        if not len(rows) or set(rows["target"].unique()) != {target}:
            continue
        rows = rows.sort_values("time")
        took = rows["time"].diff().dt.total_seconds()
        known = rows.assign(took=took)[took < _PAUSE_S].groupby("problem")["took"].agg(["size", "sum"])
        found += [
            Measured(int(row["size"]), float(problem_from_id(str(name)).flops), float(row["sum"]))
            for name, row in known.iterrows()
            if row["sum"] > 0
        ]
        runs += 1
        if runs == _EARLIER_RUNS:
            break
    return found, runs


def _spoken(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"
