"""Two versions of a dispatcher's rule, and the picks of one of them as a CSV file.

python dispatcher.py 1 picks.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_sets


def version_1(problem: Problem) -> str:
    """One kernel where the channels fill vectors of 16 bytes, another elsewhere."""
    if problem.C // problem.G % 8 == 0 and problem.K // problem.G % 8 == 0:
        return "64x64x64_basic_async_v1_intrawave_dsb_v8x8x8"
    return "64x64x64_comp_async_intrawave_dsb_v4x4x4"


def version_2(problem: Problem) -> str:
    """Smaller tiles where there are few output pixels."""
    if problem.N * problem.Ho * problem.Wo <= 1024:
        return version_1(problem).replace("64x64x64_", "32x64x64_").replace("basic_async_v1", "comp_async")
    return version_1(problem)


def main(version: str, path: str) -> None:
    """Writes the picks for forward_validation_300."""
    pick = {"1": version_1, "2": version_2}[version]
    with Path(path).open("w", newline="") as file:
        rows = csv.writer(file)
        problems = load_problem_sets("forward_validation_300").problems
        columns = [name for name in problems[0].as_row() if name not in ("direction", "dtype")]
        rows.writerow([*columns, "kernel_name", "predicted_tflops"])
        for problem in problems:
            values = problem.as_row()
            rows.writerow([*(values[name] for name in columns), pick(problem), 1.0])


if __name__ == "__main__":
    main(*sys.argv[1:])
