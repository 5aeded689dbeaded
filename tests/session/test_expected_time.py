"""Long problems go first: by floating-point operations, and by the times that a resumed run recorded."""

from __future__ import annotations

from pathlib import Path

from tests.report.records_factory import record, some_kernels
from tile_oracle.problem import problem_from_id
from tile_oracle.record.journal import write_part
from tile_oracle.record.run import Run
from tile_oracle.session.expected_time import expected_times

LARGE = "forward-fp32-n8-c64-k64-i56x56-f3x3-p1"
SMALL = "forward-fp32-n1-c8-k8-i6x6-f3x3"
OTHER = "forward-fp32-n1-c16-k16-i5x5-f1x1"


def run_with(folder: Path, rows: list[tuple[str, int, float]]) -> Run:
    """A resumed run. rows: problem, number of its recorded kernels, milliseconds of each."""
    run = Run(folder, {}, resumed=True)
    run.measurements.mkdir(parents=True)
    write_part(
        run.measurements / "part-main-00000.parquet",
        [
            record(problem, kernel) | {"busy_ms": busy_ms}
            for problem_id, count, busy_ms in rows
            for problem in [problem_from_id(problem_id)]
            for kernel in some_kernels(count, problem)
        ],
    )
    return run


def test_larger_problems_and_more_kernels_take_longer() -> None:
    times = expected_times({SMALL: 10, LARGE: 10, OTHER: 15}, None)
    assert times[LARGE] > times[OTHER] > times[SMALL] > 0


def test_recorded_pairs_take_no_time(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [(LARGE, 10, 50.0), (SMALL, 4, 1.0)])
    times = expected_times({SMALL: 10, LARGE: 10}, run)
    assert times[LARGE] == 0
    assert times[SMALL] == 6 * 1.0


def test_recorded_times_override_the_operation_count(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [(SMALL, 2, 500.0), (LARGE, 2, 50.0)])
    times = expected_times({SMALL: 10, LARGE: 10, OTHER: 10}, run)
    assert times[SMALL] > times[LARGE]
    # A problem without recorded times has the median time per operation of the others.
    assert times[OTHER] > 0


def test_a_new_run_has_no_recorded_times(tmp_path: Path) -> None:
    run = Run(tmp_path / "new", {})
    assert expected_times({SMALL: 3}, run) == expected_times({SMALL: 3}, None)
