"""A process that measures and records, to be killed: EVIL_FOLDER REPORTS PROBLEMS KERNELS.

Prints one line of JSON after each measurement that is acknowledged, and one when the run is complete.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from evil_target import EvilTarget, evil_builder, evil_kernel, small_problem

from tests.measure.own_driver import own_driver
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.record.run import RunLog, open_run

SETTINGS = SweepSettings(
    timing=TimingPlan(budget_ms=0.3, max_samples=20), final_budget_ms=0.05, final_passes=1
)


def main(evil_folder: Path, reports: Path, problem_count: int, kernel_count: int) -> None:
    run = open_run(reports, {"why": "to be killed"}, stem="killed", name="killed", resume=True)
    kernels = [evil_kernel("good", i) for i in range(1, kernel_count + 1)]
    log = RunLog(run, f"main-{os.getpid()}-{time.time_ns()}")
    with evil_builder(evil_folder) as builder:
        supervisor = Supervisor(EvilTarget(builder), SETTINGS, run.measurements)
        problems = [small_problem(Hi=5 + n % 16, Wi=5 + n // 16) for n in range(problem_count)]
        driver = own_driver(supervisor, problems, kernels, log)
        for problem in problems:
            for kernel in kernels:
                m = driver.measure(problem, kernel)
                facts = [problem.id, kernel.name, m.status, m.latency_ms, m.resumed, supervisor.worker_pid]
                print(json.dumps(facts), flush=True)
        log.close()  # before the worker quits: it would seal if this process died here
        supervisor.close()
    print(json.dumps("complete"), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
