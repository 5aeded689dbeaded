"""A pick by native code, features included, beside Predictor in the same run: microseconds and ratios.

The other half, trees alone beside LightGBM and others, is test_selector_speed.py.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.selector.made_problems import random_problems
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.fitting_model import models_for, pool_of_model
from tile_oracle.model.model_folder import read_booster_text, read_spec
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import folder_of_model, kernels_trained_on
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind, Problem
from tile_oracle.selector import native_library
from tile_oracle.selector.ranker import NativeRanker, NativeSelector
from tile_oracle.selector.selector_file import NativeModel, selector_bytes

FORWARD: Kind = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)


def candidates(count: int) -> tuple[Kernel, ...]:
    """30 and 300 of the default set, more of the full one, evenly chosen."""
    pool = pool_of_kind(FORWARD, "gfx950", "default" if count <= 300 else "full")
    return tuple(pool[i * len(pool) // count] for i in range(count))


def median_us(ask: Callable[[Any], Any], problems: Sequence[Problem], place: float = 0.5) -> float:
    """The time at a place among all: 0.5 the median; a lower one where other work disturbs."""
    times = []
    for problem in problems:
        start = time.perf_counter()
        ask(problem)
        times.append(time.perf_counter() - start)
    return sorted(times)[int(place * (len(times) - 1))] * 1e6


@pytest.mark.parametrize(("count", "limit_us"), [(30, 60.0), (300, 60.0), (4608, 500.0)])
def test_pick_of_the_shipped_model(benchmark: Any, count: int, limit_us: float) -> None:
    """Limits for an idle core: 60 us for 300 candidates, 0.5 ms for 4,608, called from Python."""
    folder = models_for(Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2), "gfx950").folder
    assert folder is not None
    kernels, problems = candidates(count), random_problems(FORWARD, 2000)
    ranker, predictor = NativeRanker.load(folder, kernels), Predictor.load(folder)
    median_us(ranker.select, problems[:100])
    native = median_us(ranker.select, problems)
    python = median_us(lambda p: predictor.select(p, kernels), problems[: max(3, 3000 // count)])
    ranked = median_us(lambda p: ranker.rank(p, 5), problems)
    benchmark.extra_info |= {
        "pick_us": round(native, 1),
        "rank_5_us": round(ranked, 1),
        "predictor_us": round(python),
        "times_faster": round(python / native),
    }
    benchmark.pedantic(ranker.select, (problems[0],), rounds=200, warmup_rounds=20)
    print(f"\n{count} candidates: {benchmark.extra_info}")
    assert native < limit_us


@pytest.mark.parametrize(
    ("name", "kind", "limit_us"),
    [
        ("attention_fwd_bf16_sm_90", Kind.of("attention", dtype="bf16", head_dim=64, causal=1), 100.0),
        ("gemm_bf16_sm_90", Kind.of("gemm", dtype="bf16", layout="rcr"), 20_000.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("count", [None, 300], ids=["its pool", "300"])
def test_pick_among_kernels_by_name(
    benchmark: Any, name: str, kind: Kind, limit_us: float, count: int | None
) -> None:
    """The shipped models of kernels by name, each on its own pool and on 300 of its kernels: trees, four
    networks of 512 and 256 units. Also reading the exported file, and the first pick."""
    folder = folder_of_model(name)
    known = [one for one in map(parse_kernel_name, sorted(kernels_trained_on(folder))) if one.kind == kind]
    kernels = pool_of_model(folder, kind) if count is None else known[:: len(known) // count][:count]
    problems = random_problems(kind, 100)
    predictor, data = Predictor.load(folder), selector_bytes(NativeModel.load(folder), kernels)
    native_library.load()
    start = time.perf_counter()
    NativeSelector(data)
    read_ms = (time.perf_counter() - start) * 1e3
    ranker = NativeRanker.load(folder, kernels)
    first_us = median_us(ranker.select, problems[:1])
    native = median_us(ranker.select, problems, 0.1)
    python = median_us(lambda p: predictor.select(p, kernels), problems[:20], 0.1)
    benchmark.extra_info |= {
        "candidates": len(kernels),
        "pick_us": round(native, 1),
        "predictor_us": round(python),
        "file_bytes": len(data),
        "read_ms": round(read_ms, 1),
        "first_pick_us": round(first_us),
    }
    benchmark.pedantic(ranker.select, (problems[0],), rounds=50, warmup_rounds=5)
    print(f"\n{kind.op}: {benchmark.extra_info}")
    assert native < limit_us


@pytest.mark.parametrize("count", [30, 300, 4608])
def test_load_and_memory(benchmark: Any, count: int) -> None:
    """Limits: 200 ms of processor time, and with up to 300 candidates memory under three times the model's
    text (of thousands the names alone take more than a small model)."""
    folder = models_for(Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2), "gfx950").folder
    assert folder is not None
    kernels = candidates(count)
    NativeRanker.load(folder, kernels)  # builds the library, reads names
    processor_ms = []
    for _ in range(5):
        start = time.process_time()
        ranker = NativeRanker.load(folder, kernels)
        processor_ms.append((time.process_time() - start) * 1e3)
    benchmark.pedantic(NativeRanker.load, (folder, kernels), rounds=1)
    load_ms = statistics.median(processor_ms)
    members = read_spec(folder).members.get("correction", 1)
    text = sum(len(read_booster_text(folder, "correction", number)[1]) for number in range(members))
    file = len(selector_bytes(NativeModel.load(folder), kernels))
    benchmark.extra_info |= {
        "load_processor_ms": round(load_ms),
        "memory_bytes": ranker.memory_bytes,
        "text_bytes": text,
        "file_bytes": file,
    }
    print(f"\n{count} candidates: {benchmark.extra_info}")
    assert ranker.memory_bytes < 3 * text or count > 300
    assert load_ms < 200
