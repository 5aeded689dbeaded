"""A session that a kernel may kill or stop: FOLDER REPORTS FAMILY. Prints its measurements at its end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from unittest.mock import patch

from evil_target import small_problem

from tests.measure.own_driver import own_driver
from tests.misbehaviour.families import INNOCENT
from tests.misbehaviour.family_library import FamilyTarget
from tests.misbehaviour.runner import AFTER, BEFORE, SETTINGS, Seen, as_json
from tests.misbehaviour.tables import FAMILIES
from tile_oracle.measure import measuring
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.record.run import RunLog, open_run


def main(folder: Path, reports: Path, name: str) -> None:
    family = next(one for one in FAMILIES if one.name == name)
    target = FamilyTarget(folder / "own", [family], family.limit_s)
    run = open_run(reports, {"why": "a kernel misbehaves"}, stem="own", name="own", resume=True)
    log = RunLog(run, f"main-{os.getpid()}-{time.time_ns()}")
    innocent = [target.kernel(INNOCENT, i + 1) for i in range(BEFORE + AFTER)]
    kernels = [*innocent[:BEFORE], target.kernel(family), *innocent[BEFORE:]]
    supervisor = Supervisor(target, SETTINGS, run.measurements)
    problem, seen = small_problem(Hi=6), []
    driver = own_driver(supervisor, [problem], kernels, log)
    # The kernels are copies of one library that ask for their file name: no twins.
    with patch.object(measuring, "run_identity", lambda source, kernel, path: None):
        for kernel in kernels:
            m = driver.measure(problem, kernel)
            seen.append(
                Seen(target.families[kernel.tile_m - 1].name, kernel.tile_n, m.status, m.detail, final=False)
            )
    log.close()
    supervisor.close()
    target.close()
    print(as_json(seen), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
