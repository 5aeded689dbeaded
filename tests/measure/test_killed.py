"""kill -9 at random moments: every acknowledged row is in the parquet files, once.

TILE_ORACLE_KILLS=50 kills fifty times in all; the default is a dozen.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import evil_target
import pandas as pd
import pytest

import tile_oracle
from tile_oracle.compiling.builder import Builder
from tile_oracle.record.dataset import IDENTITY, load_records

SCRIPT = Path(__file__).with_name("measuring_process.py")
KILLS_OF_EACH_KIND = -(-int(os.environ.get("TILE_ORACLE_KILLS", "12")) // 3)
PROBLEMS, KERNELS = 12 * KILLS_OF_EACH_KIND, 4
LONGEST_WAIT_S = 180


@dataclass
class Measuring:
    """The script at work, and what it has acknowledged so far."""

    evil_folder: Path
    reports: Path
    problems: int = PROBLEMS
    acknowledged: list[list[Any]] = field(default_factory=list)
    complete: bool = False

    def __post_init__(self) -> None:
        packages = (Path(tile_oracle.__file__).parent.parent, Path(evil_target.__file__).parent)
        search = [*map(str, packages), str(SCRIPT.parents[2])]
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, self.evil_folder, self.reports, str(self.problems), str(KERNELS)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        )
        self.began = threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # torn by the kill
            value = json.loads(line)
            if value == "complete":
                self.complete = True
            else:
                self.acknowledged.append(value)
                if not value[4]:
                    self.began.set()
        self.began.set()

    @property
    def worker(self) -> int | None:
        return self.acknowledged[-1][5] if self.acknowledged else None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)

    def kill_worker(self) -> None:
        with suppress(ProcessLookupError):
            if self.worker is not None:
                os.kill(self.worker, signal.SIGKILL)

    def wait(self) -> None:
        self.process.wait(LONGEST_WAIT_S)
        self.reader.join(LONGEST_WAIT_S)
        self.process.stdout.close()


@pytest.fixture
def evil_kernels_built(evil_builder: Builder, evil_folder: Path) -> Path:
    for i in range(1, KERNELS + 1):
        assert evil_builder.submit(evil_target.evil_kernel("good", i)).result().binary
    return evil_folder


def wait_for_end(pid: int | None) -> None:
    """Waits until a process that is not our child has ended: the worker seals before it ends."""
    deadline = time.monotonic() + LONGEST_WAIT_S
    pause = threading.Event()
    while pid is not None and time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        pause.wait(0.005)
    assert pid is None


def check_parquet(folder: Path, acknowledged: list[list[Any]]) -> pd.DataFrame:
    """Every acknowledged row is in it with its value, and none is in it twice; read with plain pandas."""
    if not acknowledged:
        return pd.DataFrame()
    table = pd.read_parquet(folder)
    assert not table.duplicated(IDENTITY).any()
    sweep = table[table["round"] == 0].set_index(["problem", "kernel"])
    for problem, kernel, status, latency_ms, _, _ in acknowledged:
        row = sweep.loc[(problem, kernel)]
        assert row["status"] == status
        if status == "ok":
            assert row["latency_ms"] == latency_ms
    return table


def check_complete(reports: Path, evil_folder: Path, problems: int, allowed_crashes: int) -> None:
    """Resume to the end: every pair is there, once, and no file is left that is not a part."""
    last = Measuring(evil_folder, reports, problems)
    last.wait()
    assert last.complete
    folder = reports / "killed" / "measurements"
    table = check_parquet(folder, last.acknowledged)
    assert int((table["round"] == 0).sum()) == problems * KERNELS
    assert {path.name.split("-")[0] for path in folder.iterdir()} == {"part"}
    assert {path.name for path in folder.parent.iterdir()} == {"measurements", "run.json"}
    crashed = table[table["status"] == "crash"]
    assert set(table["status"]) <= {"ok", "noisy", "crash"}
    assert len(crashed) <= allowed_crashes
    assert crashed["detail"].str.startswith("killed by SIGKILL").all()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["process", "both"])
def test_kill_9_loses_and_duplicates_nothing(victim: str, evil_kernels_built: Path, tmp_path: Path) -> None:
    moments = random.Random(20260)
    folder = tmp_path / "killed" / "measurements"
    acknowledged: dict[tuple[str, str], list[Any]] = {}
    for _ in range(KILLS_OF_EACH_KIND):
        measuring = Measuring(evil_kernels_built, tmp_path)
        measuring.began.wait(LONGEST_WAIT_S)
        threading.Event().wait(moments.uniform(0, 0.1))
        if victim == "both":
            measuring.kill_worker()
        measuring.kill()
        measuring.wait()
        wait_for_end(measuring.worker)
        if victim == "both":
            load_records(tmp_path / "killed")  # any reader seals the journals of dead processes
        acknowledged |= {(line[0], line[1]): line for line in measuring.acknowledged}
        check_parquet(folder, list(acknowledged.values()))
        assert not list(folder.glob(".journal-*"))
    check_complete(tmp_path, evil_kernels_built, PROBLEMS, allowed_crashes=0)


@pytest.mark.slow
def test_killed_workers_cost_no_more_than_the_kernel_that_ran(
    evil_kernels_built: Path, tmp_path: Path
) -> None:
    moments = random.Random(20261)
    problems = 10 * PROBLEMS
    measuring = Measuring(evil_kernels_built, tmp_path, problems)
    kills = 0
    while kills < KILLS_OF_EACH_KIND and measuring.process.poll() is None:
        measuring.began.wait(LONGEST_WAIT_S)
        seen = measuring.worker
        threading.Event().wait(moments.uniform(0, 0.1))
        measuring.kill_worker()
        kills += 1
        # None: the crash is reported and the worker not yet replaced, so no process would seal after a kill.
        while measuring.worker in (seen, None) and measuring.process.poll() is None:
            threading.Event().wait(0.005)
    assert kills == KILLS_OF_EACH_KIND
    measuring.kill()
    measuring.wait()
    wait_for_end(measuring.worker)
    check_parquet(tmp_path / "killed" / "measurements", measuring.acknowledged)
    check_complete(tmp_path, evil_kernels_built, problems, allowed_crashes=kills)
