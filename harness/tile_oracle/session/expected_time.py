"""Expected times of the problems' tests, in relative units: long problems start first."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING

from tile_oracle.errors import HarnessError
from tile_oracle.problem import problem_from_id
from tile_oracle.record.dataset import load_records
from tile_oracle.record.run import Run
from tile_oracle.record.schema import ROUND_SWEEP

if TYPE_CHECKING:
    import pandas as pd

_FLOPS_OF_OVERHEAD = 1e9
"""The overhead of a pair (build, check, sampling), expressed as FLOPs."""


def expected_times(counts: Mapping[str, int], run: Run | None) -> dict[str, float]:
    """Problem id -> expected time of all its tests, in a relative unit.

    counts: problem id -> number of its tests. run: the run that is resumed; its recorded pairs take no time
    and predict the time of the problem's other kernels.
    """
    sizes = {problem: _FLOPS_OF_OVERHEAD + problem_from_id(problem).flops for problem in counts}
    recorded = _recorded(run) if run is not None and run.resumed else {}
    rates = [busy_ms / sizes[problem] for problem, (_, busy_ms) in recorded.items() if problem in sizes]
    ms_per_flop = median(rates) if rates else 1.0
    times = {}
    for problem, count in counts.items():
        done, busy_ms = recorded.get(problem, (0, sizes[problem] * ms_per_flop))
        times[problem] = max(0, count - done) * busy_ms
    return times


def _recorded(run: Run) -> dict[str, tuple[int, float]]:
    """Problem id -> number of its recorded pairs, and the device's mean busy time per pair in milliseconds,
    for problems with such a time."""
    try:
        records: pd.DataFrame = load_records(run.folder)
    except HarnessError:
        return {}  # the code that needs the records reports the error
    swept = records[records["round"] == ROUND_SWEEP].groupby("problem")
    table = {str(problem): (len(rows), float(rows["busy_ms"].mean())) for problem, rows in swept}
    return {problem: found for problem, found in table.items() if found[1] > 0}
