"""The order in which a problem's kernels are swept."""

from __future__ import annotations

import math
from dataclasses import replace

from evil_target import evil_kernel, small_problem

from tile_oracle.measure.kernel_order import KernelOrder
from tile_oracle.measure.leaders import choose_leaders, final_passes, may_win_yet, samples_a_pass
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.sweep_settings import SweepSettings

KERNELS = [evil_kernel("good", variant) for variant in range(1, 9)]
PROBLEM = small_problem()


def timed(*latencies_ms: float) -> list[Measurement]:
    return [
        Measurement(PROBLEM, kernel, "ok", latency_ms=ms)
        for kernel, ms in zip(KERNELS, latencies_ms, strict=False)
    ]


def test_kernels_that_were_fast_come_first_and_unknown_ones_in_the_middle() -> None:
    order = KernelOrder()
    order.learn(timed(4.0, 2.0, 1.0, 3.0))
    assert order.ordered(KERNELS[:4]) == [KERNELS[2], KERNELS[1], KERNELS[3], KERNELS[0]]
    # Efficiencies count, not times: the second problem is a hundred times larger.
    order.learn(timed(100.0, 400.0, 110.0, 400.0))
    assert order.ordered(KERNELS[:4])[0] == KERNELS[2]
    assert order.ordered(KERNELS[:4])[-1] == KERNELS[3]
    order = KernelOrder()
    order.learn(timed(1.0, 4.0))
    assert order.ordered(KERNELS[:3]) == [KERNELS[0], KERNELS[2], KERNELS[1]]


def test_the_first_problems_kernels_are_shuffled_the_same_way_each_time() -> None:
    first = KernelOrder().ordered(KERNELS)
    assert first == KernelOrder().ordered(reversed(KERNELS))
    assert first != KERNELS
    assert set(first) == set(KERNELS)


def test_failures_teach_nothing() -> None:
    order = KernelOrder()
    order.learn([])
    order.learn([replace(m, status="noisy") for m in timed(1.0, 2.0)])
    assert order.ordered(KERNELS) == KernelOrder().ordered(KERNELS)


def test_at_most_six_leaders_are_within_a_tenth_of_the_best_and_there_are_two() -> None:
    def leaders(*latencies_ms: float) -> list[float]:
        return [m.latency_ms for m in choose_leaders(timed(*latencies_ms), (), SweepSettings())]

    assert leaders(1.11, 1.0, 1.1, 1.05, 5.0) == [1.0, 1.05, 1.1]
    assert leaders(2.0, 9.0, 1.0) == [1.0, 2.0]
    assert leaders(*[1.0 + 0.01 * number for number in range(8)]) == [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
    failed = [replace(m, status="wrong") for m in timed(0.5)]
    noisy = [replace(m, status="noisy", latency_min_ms=m.latency_ms) for m in timed(0.7)]
    assert choose_leaders([*failed, *noisy], (), SweepSettings()) == noisy


def test_long_kernels_are_measured_again_in_fewer_passes_with_fewer_samples() -> None:
    settings = SweepSettings()
    assert [final_passes(timed(*ms), settings) for ms in ((1.0, 399.0), (500.0,), (1000.0, 900.0))] == [
        5,
        4,
        1,
    ]
    assert final_passes(timed(9000.0), settings) == 1
    assert [samples_a_pass(m, settings) for m in timed(0.001, 0.5, 4.0, 5.0)] == [100, 8, 1, 1]
    assert [samples_a_pass(replace(m, status="noisy"), settings) for m in timed(0.5, 4.0)] == [8, 2]


def test_kernels_that_have_lost_may_win_once_the_fastest_are_no_good() -> None:
    best, second = timed(1.0, 1.5)
    lost = [replace(m, at_least_ms=0.9 * m.latency_ms) for m in timed(*[1.0] * 3, 4.0, 6.0, 30.0)[3:]]
    known = [best, second, *lost]
    settings = SweepSettings()
    assert may_win_yet(known, settings) == []
    again = replace(best, round=1)
    assert may_win_yet([*known, replace(again, status="noisy")], settings) == [], "that proves nothing"
    failed = [*known, replace(again, status="crash")]
    assert may_win_yet(failed, settings) == [lost[0]], "it takes at least 3.6 ms, the best now 1.5 ms"
    both = [*failed, replace(second, round=1, status="wrong")]
    assert may_win_yet(both, settings) == lost[:2], "nothing else is left: first those near the best of them"
    checked = [replace(m, round=2, at_least_ms=math.nan) for m in lost[:2]]
    assert may_win_yet([*both, *checked], settings) == []
    assert may_win_yet([*both, replace(checked[0], status="wrong"), checked[1]], settings) == []
