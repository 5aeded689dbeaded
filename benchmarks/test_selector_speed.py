"""Trees scored by the native engine beside LightGBM, lleaves and tl2cgen, in one run: ratios.

One core, one problem at a time, all candidates. Everybody gets the features ready: LightGBM and the others
as rows, the engine as one value a class; the masks that it makes of them are in its time. The scores must be
those of LightGBM, bit for bit. Times are of the processor, not the wall, so that other work on the machine
counts little; ratios are what this is for. Picks with features included are in test_selector_pick.py.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from tests.selector.made_problems import random_problems
from tests.selector.native_scorer import Constant, FeatureSource, PerClass, PerKernel, Scorer
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import Kernel
from tile_oracle.model.model_folder import ModelSpec, packed_booster
from tile_oracle.model.model_text import Forest
from tile_oracle.model.store import SPEC_FILE
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.selector.selector_file import problem_fields, shared_words
from tile_oracle.selector.trace import Pool

FORWARD: Kind = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
SCHEMA = schema_named("grouped_conv_own_1")
HARDWARE = hardware_features("gfx950")
LARGE, SMALL = (2000, 255), (300, 31)
LEAST_RATIO = {30: 40.0, 300: 80.0, 4608: 150.0}
"""Of the large model, to LightGBM."""

Score = Callable[[int], Any]
"""Number of a problem -> its scores."""


@lru_cache(maxsize=1)
def pool() -> Sequence[Kernel]:
    return pool_of_kind(FORWARD, "gfx950", "full")


def features(problem: Any, kernels: Sequence[Kernel]) -> Any:
    return SCHEMA.compute(pair_columns([problem], kernels), HARDWARE)


@lru_cache(maxsize=2)
def trained(trees: int, leaves: int) -> lgb.Booster:
    """Published settings, 40,000 pairs, times by a rule of thumb with noise, so that trees are full."""
    random = np.random.default_rng(0)
    rows, times = [], []
    for problem in random_problems(FORWARD, 400, seed=1):
        x = features(problem, [pool()[i] for i in random.choice(len(pool()), 100, replace=False)])
        of = dict(zip(SCHEMA.names, x.T, strict=True))
        busy = np.logaddexp(0.7 * of["log2_compute"], 0.69 * of["log2_cu_traffic"] + 4)
        shape = 0.3 * np.sin(3 * of["log2_M"]) * of["fill_m"] + 0.2 * of["fill_k"] * of["vectors_fit"]
        rows.append(x)
        times.append(busy + shape + 0.1 * random.normal(size=len(x)))
    params = {
        "verbosity": -1, "num_threads": 1, "seed": 1, "num_leaves": leaves, "learning_rate": 0.02,
        "max_depth": 15, "min_child_samples": 10, "subsample": 0.85, "bagging_freq": 1,
        "colsample_bytree": 0.85, "reg_alpha": 0.05, "reg_lambda": 0.5,
    }  # fmt: skip
    booster = lgb.train(params, lgb.Dataset(np.concatenate(rows), np.concatenate(times)), trees)
    return lgb.Booster(model_str=booster.model_to_string())


@dataclass
class Case:
    """A model, candidates, and problems as everybody takes them."""

    booster: lgb.Booster
    rows: list[Any]
    scorer: Scorer
    given: list[tuple[Any, dict[int, Any]]]

    @classmethod
    def of(cls, booster: lgb.Booster, count: int) -> Case:
        kernels = [pool()[i * len(pool()) // count] for i in range(count)]
        traced = Pool(kernels, shared_words(FORWARD), problem_fields("grouped_conv"), HARDWARE)
        nodes = traced.trace(SCHEMA, SCHEMA.names)
        sources: list[FeatureSource] = []
        for node in nodes:
            classes = traced.graph.partition_of(node)
            if node.kind == "constant" or classes is None:
                sources.append(Constant())
            elif node.kind == "kernel" and node.values is not None:
                sources.append(PerKernel(classes.of, node.values[classes.first]))
            else:
                sources.append(PerClass(classes.of, classes.count))
        rows = [features(problem, kernels) for problem in random_problems(FORWARD, 20, seed=2)]
        given = []
        for x in rows:
            of_classes = {}
            for number, (source, node) in enumerate(zip(sources, nodes, strict=True)):
                classes = traced.graph.partition_of(node)
                if isinstance(source, PerClass) and classes is not None:
                    of_classes[number] = np.ascontiguousarray(x[classes.first, number])
            given.append((np.ascontiguousarray(x[0]), of_classes))
        forest = Forest.from_text(booster.model_to_string())
        return cls(booster, rows, Scorer([forest], count, sources), given)

    def native(self) -> Score:
        """The engine through its C interface, as a C++ caller would: addresses are made beforehand."""
        out = np.empty(len(self.rows[0]))
        pointers = []
        for constants, of_classes in self.given:
            addresses = (ctypes.c_void_p * len(constants))()
            for number, values in of_classes.items():
                addresses[number] = values.ctypes.data
            pointers.append((constants.ctypes.data, addresses))

        def score(problem: int) -> Any:
            self.scorer.score_into(*pointers[problem], out.ctypes.data)
            return out

        return score


def median_us(score: Score, problems: int, least_s: float) -> float:
    """Median over problems of the least time of each, in microseconds of this thread's processor time."""
    best = [float("inf")] * problems
    begin = time.thread_time()
    rounds = 0
    while rounds < 2 or time.thread_time() - begin < least_s:
        rounds += 1
        for problem in range(problems):
            start = time.thread_time()
            score(problem)
            best[problem] = min(best[problem], time.thread_time() - start)
    return statistics.median(best) * 1e6


def lleaves_of(case: Case, model: Path) -> Score:
    import lleaves

    compiled = lleaves.Model(str(model))
    compiled.compile()
    return lambda problem: compiled.predict(case.rows[problem], n_jobs=1)


def tl2cgen_of(case: Case, model: Path) -> Score:
    import tl2cgen
    import treelite

    library = str(model.with_suffix(".so"))
    trees = treelite.frontend.load_lightgbm_model(model)
    tl2cgen.export_lib(trees, toolchain="gcc", libpath=library, params={"parallel_comp": 8})
    predictor = tl2cgen.Predictor(library, nthread=1)
    matrices = [tl2cgen.DMatrix(np.ascontiguousarray(x)) for x in case.rows]
    return lambda problem: predictor.predict(matrices[problem], pred_margin=True)


def others(case: Case, folder: Path) -> dict[str, Score]:
    """Compilers of trees that this Python has and that can compile these."""
    model = folder / "model.txt"
    case.booster.save_model(model)
    found: dict[str, Score] = {}
    for name, made in (("lleaves", lleaves_of), ("tl2cgen", tl2cgen_of)):
        try:
            found[name] = made(case, model)
        except ImportError:
            print(f"\n{name} is not installed")
        except Exception as error:
            # Each depends on versions of other packages and compilers in ways of its own.
            print(f"\n{name} does not compile these trees: {error!r}")
    return found


@pytest.mark.parametrize("count", [30, 300, 4608])
@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_scores_of_all_candidates(benchmark: Any, shape: tuple[int, int], count: int, tmp_path: Path) -> None:
    """At least 40, 80 and 150 times as fast as Booster.predict for 2,000 trees of 255 leaves and 30, 300 and
    4,608 candidates. Compilers of trees take part where they are installed, in the small model only: they
    compile for many minutes and gigabytes otherwise."""
    case = Case.of(trained(*shape), count)
    native = case.native()
    for problem in range(3):
        expected = case.booster.predict(case.rows[problem], raw_score=True, num_threads=1)
        assert native(problem).tobytes() == expected.tobytes()
    ours = median_us(native, len(case.rows), 1.0)
    theirs: dict[str, Score] = {
        "lightgbm": lambda problem: case.booster.predict(case.rows[problem], raw_score=True, num_threads=1)
    }
    if shape == SMALL:
        theirs |= others(case, tmp_path)
    few = 3 if count > 1000 else 10
    us = {name: median_us(score, few, 0.5) for name, score in theirs.items()}
    again = median_us(native, len(case.rows), 1.0)
    ours = min(ours, again)
    benchmark.extra_info |= {
        "isa": case.scorer.isa,
        "distinct": case.scorer.distinct,
        "native_us": round(ours, 1),
        **{f"{name}_us": round(value) for name, value in us.items()},
        **{f"times_{name}": round(value / ours) for name, value in us.items()},
    }
    benchmark.pedantic(native, (0,), rounds=50, warmup_rounds=5)
    print(f"\n{shape[0]} x {shape[1]}, {count} candidates: {benchmark.extra_info}")
    if shape == LARGE:
        assert us["lightgbm"] / ours >= LEAST_RATIO[count]


@pytest.mark.parametrize("count", [30, 300, 4608])
def test_a_whole_pick_of_the_large_model(benchmark: Any, count: int, tmp_path: Path) -> None:
    """The same ratios with the features, the order and the call from Python on our side, and LightGBM's trees
    alone on the other."""
    booster = trained(*LARGE)
    spec = ModelSpec(
        "grouped_conv", "bf16", "gfx950", SCHEMA.names, targets=("log_time",), direction="forward",
        ndims=(2,), schema=SCHEMA.name, picks={"log_time": 1.0},
    )  # fmt: skip
    (tmp_path / SPEC_FILE).write_text(json.dumps(spec.as_json()))
    (tmp_path / "model_log_time.lgbm.gz").write_bytes(packed_booster(booster))
    kernels = [pool()[i * len(pool()) // count] for i in range(count)]
    ranker = NativeRanker.load(tmp_path, kernels)
    problems = random_problems(FORWARD, 20, seed=2)
    rows = [features(problem, kernels) for problem in problems]
    first = booster.predict(rows[0], raw_score=True, num_threads=1)
    assert ranker.select(problems[0]).name == kernels[int(np.argmin(first))].name
    few = 3 if count > 1000 else 10
    lightgbm = median_us(lambda i: booster.predict(rows[i], raw_score=True, num_threads=1), few, 0.5)
    ours = median_us(lambda i: ranker.select(problems[i]), len(problems), 1.0)
    benchmark.extra_info |= {
        "pick_us": round(ours, 1), "lightgbm_us": round(lightgbm), "times": round(lightgbm / ours, 1)
    }  # fmt: skip
    benchmark.pedantic(ranker.select, (problems[0],), rounds=50, warmup_rounds=5)
    print(f"\nwhole pick, {LARGE[0]} x {LARGE[1]}, {count} candidates: {benchmark.extra_info}")
    assert lightgbm / ours >= LEAST_RATIO[count]


def test_loading_the_large_model(benchmark: Any) -> None:
    """Text to forest, and forest to scorer; memory under three times the text."""
    text = trained(*LARGE).model_to_string()
    forest = benchmark.pedantic(Forest.from_text, (text,), rounds=3)
    sources = [PerClass(np.arange(300, dtype=np.uint32) % 50, 50)] * len(forest.feature_names)
    start = time.perf_counter()
    scorer = Scorer([forest], 300, sources)
    benchmark.extra_info |= {
        "make_ms": round((time.perf_counter() - start) * 1e3, 1),
        "memory_bytes": scorer.memory_bytes,
        "text_bytes": len(text),
    }
    print(f"\nloading: {benchmark.extra_info}")
    assert scorer.memory_bytes < 3 * len(text)
