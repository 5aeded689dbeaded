"""What a session did over its time, from the records: device busy, waiting for compilers, faults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

FAULTS = ("wrong", "flaky", "crash", "timeout", "device_lost", "build_error")
BINS = 80
PAUSE_S = 600.0
"""A longer time without any measurement is a pause (a resumed session) and is cut out."""


@dataclass(frozen=True)
class Timeline:
    """What a session did.

    seconds: length without pauses. busy, compiling: percent of each of BINS equal parts in which the device
    ran timed kernels, or had nothing to run because kernels were being compiled; with several workers their
    sum.
    faults: (seconds from the start, status).
    """

    seconds: float
    busy: tuple[float, ...]
    compiling: tuple[float, ...]
    faults: tuple[tuple[float, str], ...]
    pauses: int = 0

    @property
    def busy_percent(self) -> float:
        """Mean over the session."""
        return float(np.mean(self.busy))

    @property
    def compiling_percent(self) -> float:
        """Mean over the session."""
        return float(np.mean(self.compiling))


def timeline_of(records: pd.DataFrame) -> Timeline | None:
    """The timeline of a run's own records; None where they lack times."""
    if not {"time", "busy_ms", "status"} <= set(records.columns) or records["busy_ms"].isna().all():
        return None
    known = records[records["time"].notna()]
    ends = pd.to_datetime(known["time"], utc=True).dt.as_unit("us").astype("int64").to_numpy() / 1e6
    busy = _seconds(known, "busy_ms")
    compiling = _seconds(known, "build_wait_ms")
    ends = _one_after_another(known["problem"], ends, busy + compiling)
    order = np.argsort(ends - busy - compiling, kind="stable")
    ends, busy, compiling = ends[order], busy[order], compiling[order]
    starts = ends - busy - compiling
    reached = np.maximum.accumulate(ends)
    gaps = np.r_[0.0, starts[1:] - reached[:-1]] if len(ends) else np.zeros(0)
    pauses = gaps > PAUSE_S
    ends = ends - np.cumsum(np.where(pauses, gaps, 0.0)) - (starts[0] if len(starts) else 0.0)
    seconds = float(ends.max(initial=0.0))
    if not seconds > 0:
        return None
    status = known["status"].astype(object).to_numpy()[order]
    faults = tuple((float(at), str(what)) for at, what in zip(ends, status, strict=True) if what in FAULTS)
    return Timeline(
        seconds,
        _shares(ends - busy, busy, seconds),
        _shares(ends - busy - compiling, compiling, seconds),
        faults,
        int(pauses.sum()),
    )


def _one_after_another(
    problems: pd.Series, ends: npt.NDArray[np.float64], lengths: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """When each row's work ended. The rows of a problem are measured by one worker, but those of an
    interleaved round are written together at its end: there, each ends where the next one starts."""
    moved = ends.copy()
    starts: dict[object, float] = {}
    names = problems.to_numpy(dtype=object)
    for row in np.argsort(ends, kind="stable")[::-1]:
        moved[row] = min(ends[row], starts.get(names[row], np.inf))
        starts[names[row]] = moved[row] - lengths[row]
    return moved


def _seconds(records: pd.DataFrame, column: str) -> npt.NDArray[np.float64]:
    if column not in records:
        return np.zeros(len(records))
    return np.asarray(records[column].astype("float64").fillna(0.0), dtype=np.float64) / 1e3


def _shares(
    starts: npt.NDArray[np.float64], lengths: npt.NDArray[np.float64], seconds: float
) -> tuple[float, ...]:
    """Percent of each bin that the intervals cover, overlaps counted several times."""
    edges = np.linspace(0.0, seconds, BINS + 1)
    covered = [float(np.clip(edge - starts, 0.0, lengths).sum()) for edge in edges]
    return tuple(float(share) for share in 100.0 * np.diff(covered) / (seconds / BINS))
