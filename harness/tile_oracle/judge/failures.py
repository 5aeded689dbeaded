"""Pairs that failed because of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

FAILURE_STATUSES = ("wrong", "flaky", "crash", "timeout", "build_error")
"""Statuses that are a kernel's own failure. `unsupported` is an answer, `noisy` and `device_lost` are the
machine's doing: they are counted and shown, and none of them counts for an oracle."""


@dataclass(frozen=True)
class Failure:
    """A pair that failed; `known` is the status in the baseline, None where it is new."""

    problem: str
    kernel: str
    status: str
    detail: str
    known: str | None = None


def failures_of(final: pd.DataFrame) -> pd.DataFrame:
    """Of settled measurements (tile_oracle.oracle) the pairs that failed: problem, kernel, status, detail,
    the gravest status first, then by name."""
    failed = final[final["status"].isin(FAILURE_STATUSES)]
    columns = ["problem", "kernel", "status", "detail"]
    failed = failed.reindex(columns=columns).assign(
        detail=failed["detail"].fillna("") if "detail" in failed else ""
    )
    gravity = failed["status"].map({status: place for place, status in enumerate(FAILURE_STATUSES)})
    order = failed.assign(gravity=gravity).sort_values(["gravity", "problem", "kernel"], ignore_index=True)
    return order[columns]
