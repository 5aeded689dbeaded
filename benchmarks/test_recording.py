"""What recording costs a measured pair: a row appended to a journal that a thread flushes to the disk
(goal: under 0.05 ms), beside the same without flushing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tile_oracle.record import journal as journal_module
from tile_oracle.record.journal import Journal
from tools.faults.flippable.records import some_rows

ROWS, PAUSE_S = 2000, 0.001


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "never flushed"])
def test_appending_a_row(
    flushed: bool, benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows a millisecond apart, as short measurements are, so that several flushes happen meanwhile."""
    if not flushed:
        monkeypatch.setattr(journal_module, "_SYNC_SECONDS", 1e6)
    monkeypatch.setattr(journal_module, "_SEAL_ROWS", 10 * ROWS)
    rows = some_rows(ROWS)
    journal = Journal(tmp_path, "w")
    taken: list[float] = []

    def append_all() -> None:
        for row in rows:
            began = time.perf_counter()
            journal.append(row)
            taken.append(time.perf_counter() - began)
            time.sleep(PAUSE_S)

    benchmark.pedantic(append_all, rounds=1)
    taken.sort()
    benchmark.extra_info |= {
        "ms_a_row_mean": round(1e3 * sum(taken) / len(taken), 4),
        "ms_a_row_median": round(1e3 * taken[len(taken) // 2], 4),
        "ms_a_row_99th": round(1e3 * taken[len(taken) * 99 // 100], 4),
    }
