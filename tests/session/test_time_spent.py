"""Where a session's time went, in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd

from tile_oracle.session.time_left import where_time_went

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)


def rows(*ms: tuple[int, float, float, float | None]) -> pd.DataFrame:
    """Rows of (minutes since the session began, timed runs, checks, waiting for compilers)."""
    return pd.DataFrame(
        [
            {
                "time": pd.Timestamp(BEGAN) + timedelta(minutes=minutes),
                "busy_ms": busy,
                "check_ms": check,
                "build_wait_ms": wait,
            }
            for minutes, busy, check, wait in ms
        ]
    )


def test_the_shares_are_of_the_wall_time_and_of_all_workers() -> None:
    run = rows((-5, 60e3, 60e3, 60e3), (1, 30e3, 20e3, 10e3), (2, 10e3, 0.0, None))
    assert where_time_went(run, BEGAN, 100.0, 1, 5.0) == (
        "timed runs 40 %, checks 20 %, waiting for compilers 10 %, pytest 5 %, host 25 % of 100 s"
    )
    assert where_time_went(run, BEGAN, 100.0, 2, 5.0) == (
        "timed runs 20 %, checks 10 %, waiting for compilers 5 %, pytest 2 %, host 62 % of 100 s on 2 workers"
    )
    assert where_time_went(rows((-5, 1.0, 1.0, 1.0)), BEGAN, 100.0, 1, 5.0) == ""
    assert where_time_went(rows(), BEGAN, 100.0, 1, 5.0) == ""
