"""Makes what the host computes of problems, before a worker needs it: the child of measure.data_ahead.

Usage: python -m tile_oracle.device.data_maker. Each line of standard input is a Load command, and each is
answered by a line with the name of a file, or an empty one where that failed; the worker then does it itself,
and says why it cannot. It ends with its input, or at a problem whose data are made on the device.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tile_oracle.measure.commands import Load
from tile_oracle.operation.on_device import on_gpu
from tile_oracle.problem import problem_from_row

_NICE = 10


def taken(file: str) -> Any:
    """Returns what the file holds, and removes it."""
    with Path(file).open("rb") as stream:
        Path(file).unlink()
        return pickle.load(stream)  # written by `main`, into a folder of this user alone


def main() -> int:
    """Answers every line."""
    os.nice(_NICE)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[len(cores) // 2 :])  # the others are the worker's
    answers, sys.stdout = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory(prefix="tile_oracle-data-") as folder:
        for number, line in enumerate(sys.stdin.buffer):
            asked, file = msgspec.json.decode(line, type=Load), Path(folder) / str(number)
            problem = problem_from_row(asked.problem)
            try:
                made = on_gpu(problem.op).host_data(problem, asked.seed)
                if made is None:
                    break
                with file.open("wb") as stream:
                    pickle.dump(made, stream, protocol=5)
            except Exception:  # the worker meets the same, and says so
                file.unlink(missing_ok=True)
            print(file if file.exists() else "", file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
