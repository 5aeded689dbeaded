"""Where a session's time went: timed runs, checks, compilers, pytest, and the rest, which is the host's."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_PARTS = {"busy_ms": "timed runs", "check_ms": "checks", "build_wait_ms": "waiting for compilers"}
"""Column of the records -> what it is the time of."""


def where_time_went(
    records: pd.DataFrame, since: datetime, wall_s: float, workers: int, pytest_s: float
) -> str:
    """Returns the shares of a session's time in words, "" where nothing was measured since it began.

    records: of the run. wall_s: since the session began. workers: processes or devices that measured at once.
    pytest_s: what pytest itself took, summed over them. The host's share is loading, launching, recording,
    judging; and waiting, where workers ran out of problems.
    """
    own = records[records["time"] >= since] if len(records) else records
    if own.empty or wall_s <= 0:
        return ""
    seconds = {name: float(own[column].sum()) / 1e3 for column, name in _PARTS.items()}
    seconds["pytest"] = pytest_s
    seconds["host"] = max(0.0, wall_s * workers - sum(seconds.values()))
    shares = ", ".join(f"{name} {100 * taken / (wall_s * workers):.0f} %" for name, taken in seconds.items())
    return f"{shares} of {wall_s:,.0f} s" + (f" on {workers} workers" if workers > 1 else "")
