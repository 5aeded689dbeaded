"""Records rows until it is killed, and prints a line for each acknowledged row. Arguments: REPORTS
SESSION."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tile_oracle.record import journal
from tile_oracle.record.run import RunLog, open_run
from tools.faults.flippable.records import some_rows

_ROWS, _SEAL_ROWS, _PAUSE_S = 4000, 150, 0.004


def record(reports: Path, session: int) -> None:
    """Prints per row: problem, kernel, latency (ms), time of acknowledgement (seconds, monotonic clock)."""
    journal._SEAL_ROWS = _SEAL_ROWS
    rows = some_rows(_ROWS, "cut", seed=session)
    run = open_run(reports, {"target": "cpu"}, stem="s", name="cut", resume=True)
    log = RunLog(run, f"s{session}")
    for row in rows:
        if row["kernel"] in {one["kernel"] for one in log.known(row["problem"])}:
            continue
        log.append(row)
        print(json.dumps([row["problem"], row["kernel"], row["latency_ms"], time.monotonic()]), flush=True)
        time.sleep(_PAUSE_S)
    log.close()


if __name__ == "__main__":
    record(Path(sys.argv[1]), int(sys.argv[2]))
