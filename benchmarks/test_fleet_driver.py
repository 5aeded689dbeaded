"""A fleet's driver with simulated devices: its own processor time a pair, its memory, and its schedule.

Goals: 0.05 ms a pair with 200 devices and 136,200 pairs, 4,000 pairs recorded a second, less than 1 GB more
memory after a million pairs. TILE_ORACLE_FLEET_PAIRS=1000000 measures the latter.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.fleet_devices import FastDevices, NothingToBuild, makespan_s
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.measure.driver import Driver, ProblemTask
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.problem import problem_from_id
from tile_oracle.record.run import RunLog, open_run

DEVICES, KERNELS = 200, 454
ROOT = Path(__file__).parents[1]
LONGEST_S = 60.0
PAIRS = int(os.environ.get("TILE_ORACLE_FLEET_PAIRS", "136200"))


def tasks(pairs: int) -> list[ProblemTask]:
    kernels = [
        parse_kernel_name(f"grouped_conv_forward_fp32_2d_16x{n}x{k}_basic_v1_intrawave_w1x1x1_wt4x16x1")
        for n in range(16, 16 * 12, 16)
        for k in range(8, 8 * 43, 8)
    ][:KERNELS]
    assert len(kernels) == KERNELS
    problems = [problem_from_id(f"forward-fp32-n{n}-c8-k8-i6x6-f3x3") for n in range(1, pairs // KERNELS + 1)]
    return [ProblemTask(problem, kernels, float(number)) for number, problem in enumerate(problems)]


def test_the_driver_of_200_devices(benchmark: Any, tmp_path: Path) -> None:
    run = open_run(tmp_path, {"target": "simulated"}, stem="s", name="fleet", resume=False)
    log = RunLog(run, "main")
    engine = FastDevices(DEVICES)
    asked = (lambda kind: lambda problem: (), lambda one: one.as_row(), SweepSettings())
    driver = Driver(engine, NothingToBuild(), log, *asked)
    own_s = {"cpu": 0.0, "wall": 0.0}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    todo = tasks(PAIRS)

    def everything() -> None:
        began = time.thread_time()
        driver.plan(todo)
        own_s["cpu"] += time.thread_time() - began
        while not driver.is_complete():
            events = engine.events(0.0)
            began, clock = time.process_time(), time.perf_counter()
            driver.step(events, time.monotonic())
            own_s["cpu"] += time.process_time() - began
            own_s["wall"] += time.perf_counter() - clock
        began, clock = time.process_time(), time.perf_counter()
        log.close()
        own_s["cpu"] += time.process_time() - began
        own_s["wall"] += time.perf_counter() - clock

    benchmark.pedantic(everything, rounds=1)
    pairs = len(todo) * KERNELS
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    benchmark.extra_info |= {
        "pairs": pairs,
        "own_cpu_ms_a_pair": round(1e3 * own_s["cpu"] / pairs, 4),
        "pairs_a_second_of_driver": round(pairs / own_s["wall"]),
        "memory_growth_mb": round(grown / 1024),
        "threads": threading.active_count(),
    }
    if pairs <= 200_000:
        recorded = pd.read_parquet(run.measurements, columns=["problem", "kernel", "round"])
        assert len(recorded) == len(recorded.drop_duplicates()) == pairs


@cache
def recorded_durations() -> list[list[float]]:
    """Seconds from row to row of each problem, as they were recorded on H200s for `forward_unseen_300`, with
    binaries built before. A problem's first row counts as its median."""
    file = (
        ROOT
        / "models/grouped_conv_forward_bf16_sm_90/nvidia-h200-84ff98ac/forward_unseen_300/default.parquet"
    )
    rows = pd.read_parquet(file, columns=["problem", "time", "round"])
    swept = rows[rows["round"] == 0].sort_values("time")
    found = []
    for _, times in swept.groupby("problem")["time"]:
        seconds = times.diff().dt.total_seconds()
        found.append(seconds.fillna(seconds.median()).clip(0.0, LONGEST_S).tolist())
    return found


@pytest.mark.parametrize("times", [1, 10])
@pytest.mark.parametrize("devices", [1, 4, 16, 64, 200, 1000])
def test_the_schedule_over_many_devices(devices: int, times: int, benchmark: Any) -> None:
    """Against the lower bound: the mean work of a device, or the longest kernel."""
    durations = recorded_durations() * times
    found: list[tuple[float, float]] = []
    benchmark.pedantic(lambda: found.append(makespan_s(durations, devices)), rounds=1)
    took, bound = found[0]
    benchmark.extra_info |= {
        "pairs": sum(map(len, durations)),
        "devices": devices,
        "problems": len(durations),
        "seconds": round(took, 1),
        "lower_bound_seconds": round(bound, 1),
        "over_bound": round(took / bound, 3),
    }
