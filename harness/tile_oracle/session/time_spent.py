"""Where a session's time went: timed runs, checks, compilers, pytest, and the rest, which is the host's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_PARTS = {"busy_ms": "timed runs", "check_ms": "checks", "build_wait_ms": "waiting for compilers"}
"""Column of the records -> what it is the time of."""


@dataclass(frozen=True)
class TimeSpent:
    """wall_s: since the session began. workers: processes or devices that measured at once. pytest_s: what
    pytest itself took in each worker, collecting tests and between measurements, summed over them."""

    wall_s: float
    workers: int
    pytest_s: float

    def describe(self, records: pd.DataFrame, since: datetime) -> str:
        """Returns the shares in words, "" where nothing was measured since. records: of the run.

        The host's share is loading, launching, recording, judging; and waiting, where workers ran out of
        problems.
        """
        own = records[records["time"] >= since] if len(records) else records
        if own.empty or self.wall_s <= 0:
            return ""
        seconds = {name: float(own[column].sum()) / 1e3 for column, name in _PARTS.items()}
        seconds["pytest"] = self.pytest_s
        whole = self.wall_s * self.workers
        seconds["host"] = max(0.0, whole - sum(seconds.values()))
        shares = ", ".join(f"{name} {100 * taken / whole:.0f} %" for name, taken in seconds.items())
        several = f" on {self.workers} workers" if self.workers > 1 else ""
        return f"{shares} of {self.wall_s:,.0f} s{several}"
