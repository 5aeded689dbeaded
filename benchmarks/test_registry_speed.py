"""What a registry adds to a pick: ratios within one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from tile_oracle.problem import problem_from_id
from tile_oracle.registry import Registry

PROBLEM = problem_from_id("forward-bf16-n1-c64-k64-i56x56-f3x3-p1")


def median_us(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return 1e6 * statistics.median(taken)


def test_a_pick_among_300_kernels(benchmark: Any) -> None:
    """At least 50 times as fast as the same pick in Python; at most three times the native ranker's own."""
    with (
        Registry(arch="gfx950", engine="native") as native,
        Registry(arch="gfx950", engine="python") as python,
    ):
        assert native.select(PROBLEM) == python.select(PROBLEM)
        benchmark(native.select, PROBLEM)
        by_registry = median_us(lambda: native.select(PROBLEM), 2000)
        rank = native.candidates(PROBLEM).rank
        assert rank is not None
        by_ranker = median_us(lambda: rank(PROBLEM, 1), 2000)
        by_python = median_us(lambda: python.select(PROBLEM), 20)
    benchmark.extra_info |= {
        "candidates": len(native.candidates(PROBLEM).kernels),
        "registry_us": by_registry,
        "native_ranker_us": by_ranker,
        "python_us": by_python,
    }
    assert by_python / by_registry > 50
    assert by_registry / by_ranker < 3
