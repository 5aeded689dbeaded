from __future__ import annotations

from tile_oracle.measure.measurement import Measurement
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import kernel_pool
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.registry.measuring import PoolMeasurements, best_of

PROBLEM = GroupedConvProblem("forward", "fp32", 2, 1, 4, 5, 1, 7, 7, 3, 3)
KERNELS = kernel_pool("forward", "fp32", 2, "cpu", "tiny")[:4]


def measured(number: int, status: str, latency_ms: float = 1.0, **others: int) -> Measurement:
    return Measurement(PROBLEM, KERNELS[number], status, latency_ms=latency_ms, samples=9, **others)


def ranked(*measurements: Measurement) -> list[tuple[int, str]]:
    """(number of the kernel, its status), best first."""
    pool = PoolMeasurements(PROBLEM, measurements, best_of(measurements), 4, 0.1)
    return [(KERNELS.index(m.kernel), m.status) for m in pool.ranked()]


def test_a_steady_time_comes_before_a_shorter_one_that_is_not() -> None:
    assert ranked(measured(0, "noisy", 0.5), measured(1, "ok", 2.0), measured(2, "ok", 1.0)) == [
        (2, "ok"),
        (1, "ok"),
        (0, "noisy"),
    ]


def test_where_no_time_is_steady_the_fastest_kernel_that_is_right_is_the_best() -> None:
    wrong = Measurement(PROBLEM, KERNELS[3], "wrong")
    assert ranked(wrong, measured(0, "noisy", 2.0), measured(1, "noisy", 1.0)) == [(1, "noisy"), (0, "noisy")]


def test_a_kernel_that_failed_later_is_not_the_best() -> None:
    assert ranked(measured(0, "noisy"), Measurement(PROBLEM, KERNELS[0], "crash", round=ROUND_FINAL)) == []
