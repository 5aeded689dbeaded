"""The timeline of a session, from its records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.report.data import RunInfo, analyse
from tile_oracle.report.html import report_html
from tile_oracle.report.timeline import BINS, timeline_of

START = pd.Timestamp("2026-01-02T03:00:00Z")


def rows(*measured: tuple[float, float, float, str]) -> pd.DataFrame:
    """(end in seconds, busy_ms, build_wait_ms, status)."""
    problem = some_problems(1)[0]
    kernels = some_kernels(len(measured), problem)
    return frame(
        [
            record(problem, kernel, status=status)
            | {"time": START + pd.Timedelta(seconds=end), "busy_ms": busy, "build_wait_ms": waited}
            for kernel, (end, busy, waited, status) in zip(kernels, measured, strict=True)
        ]
    )


def test_shares_are_those_of_the_recorded_times() -> None:
    found = timeline_of(rows((2.0, 2000.0, 0.0, "ok"), (6.0, 1000.0, 2000.0, "ok"), (8.0, 0.0, 0.0, "crash")))
    assert found is not None
    assert found.seconds == pytest.approx(8.0)
    assert found.busy_percent == pytest.approx(100 * 3 / 8)
    assert found.compiling_percent == pytest.approx(100 * 2 / 8)
    busy = np.array(found.busy).reshape(8, BINS // 8).mean(axis=1)
    assert busy == pytest.approx([100, 100, 0, 0, 0, 100, 0, 0])
    compiling = np.array(found.compiling).reshape(8, BINS // 8).mean(axis=1)
    assert compiling == pytest.approx([0, 0, 0, 100, 100, 0, 0, 0])
    assert found.faults == ((pytest.approx(8.0), "crash"),)


def test_rows_of_an_interleaved_round_are_laid_one_after_another() -> None:
    found = timeline_of(rows((1.0, 1000.0, 0.0, "ok"), *((6.0, 1000.0, 0.0, "ok"),) * 4))
    assert found is not None
    assert max(found.busy) <= 100.0 + 1e-6
    assert found.busy_percent == pytest.approx(100 * 5 / 6)


def test_pauses_of_a_resumed_session_are_cut_out() -> None:
    found = timeline_of(rows((10.0, 5000.0, 0.0, "ok"), (50_000.0, 5000.0, 0.0, "ok")))
    assert found is not None
    assert (found.pauses, found.seconds) == (1, pytest.approx(10.0))
    assert found.busy_percent == pytest.approx(100.0)


def test_records_without_times_have_no_timeline() -> None:
    some = rows((1.0, 1.0, 0.0, "ok"))
    assert timeline_of(some.assign(busy_ms=np.nan)) is None
    assert timeline_of(some.drop(columns="time")) is None
    assert timeline_of(some.iloc[:0]) is None


def test_a_page_of_a_measured_run_shows_it_and_that_of_a_replay_does_not() -> None:
    problem = some_problems(1)[0]
    some = rows((1.0, 900.0, 0.0, "ok"), (2.0, 900.0, 50.0, "ok"))
    assert "Use of the device" in report_html(analyse(some, [problem], None, run=RunInfo("a-run")))
    replayed = RunInfo("a-run", replayed="a file")
    assert "Use of the device" not in report_html(analyse(some, [problem], None, run=replayed))
