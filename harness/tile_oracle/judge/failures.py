"""Pairs that failed because of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

FAILURE_STATUSES = ("wrong", "flaky", "crash", "timeout", "build_error")
"""Statuses that are failures of the kernel. `unsupported` is not a failure, and `noisy` and `device_lost` are
caused by the machine: these are counted and shown, but not considered for oracles."""


@dataclass(frozen=True)
class Failure:
    """A pair that failed. known: its status in the baseline, None for a new failure."""

    problem: str
    kernel: str
    status: str
    detail: str
    known: str | None = None


def failures_of(final: pd.DataFrame) -> pd.DataFrame:
    """Returns the failed pairs of final measurements (record.final): problem, kernel, status, detail. The
    most severe status is first, then by name."""
    columns = ["problem", "kernel", "status", "detail"]
    failed = final[final["status"].isin(FAILURE_STATUSES)].reindex(columns=columns)
    # As objects: a column without any text may be of numbers, which no text fits in.
    failed["detail"] = failed["detail"].astype(object).where(failed["detail"].notna(), "")
    gravity = failed["status"].map({status: place for place, status in enumerate(FAILURE_STATUSES)})
    order = failed.assign(gravity=gravity).sort_values(["gravity", "problem", "kernel"], ignore_index=True)
    return order[columns]
