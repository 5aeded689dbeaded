"""Native picks are bit-identical to Predictor's, for every kind of model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems
from tests.model.test_predictor import published_folder
from tests.samples import slow
from tests.selector.made_problems import random_problems
from tests.selector.test_traced_features import kernels_by_name, made_code
from tests.training.test_gemm_training import make_records as make_gemm_records
from tests.training.test_grow_network import BOTH, NAMES, NETWORK, QUICK
from tests.training.test_grow_network import made_records as made_pool_records
from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.vouched_files import MANIFEST_FILE, seal_folder
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.kernel.named import source_of
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor, kind_refusal
from tile_oracle.model.ranker import constant_groups
from tile_oracle.model.store import SPEC_FILE, read_json
from tile_oracle.model.trees import TreeSettings
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind, Problem, problem_from_id
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.merge import merge_records
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.selector.selector_file import problem_fields, shared_words
from tile_oracle.selector.trace import Pool
from tile_oracle.training.recipe import Recipe, TreePart, recipe_named
from tile_oracle.training.train import train

PROBLEMS = int(os.environ.get("TILE_ORACLE_SELECTOR_PROBLEMS", "100"))
"""Random problems per shipped model; docs/selector.md says what was run with more."""

FORWARD: Kind = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
FOLDERS = sorted(path.parent for path in data_folder("models").glob(f"*/{SPEC_FILE}"))
EXACT = [folder for folder in FOLDERS if "network" not in read_spec(folder).targets]
"""Native code evaluates networks in single precision."""
CLOSE = 2e-5
"""The largest difference of two scores of networks in Python that native code may order otherwise."""
VALIDATION = [
    pytest.param(
        path.parent.parent.parent, path, marks=[] if "/attention" in str(path) else pytest.mark.slow,
        id=f"{path.parent.parent.parent.name}-{path.parent.name}",
    )
    for path in sorted(data_folder("models").glob("*/*/*/*.parquet"))
]  # fmt: skip
"""The recorded validation sets that ship with a model, and the model's folder."""
OF_GFX950 = data_folder("models") / "grouped_conv_forward_bf16_gfx950"


def assert_same(
    folder: Path, kernels: Sequence[Kernel], problems: Sequence[Problem], code: CodeTable | None = None
) -> None:
    """Every candidate's ln(time) and TFLOPS, the order and the pick."""
    native, predictor = NativeRanker.load(folder, kernels, code), Predictor.load(folder)
    if code is not None:
        predictor = predictor.knowing(code)
    shape = (len(problems), len(kernels))
    rows, groups = pair_columns(problems, kernels), constant_groups(*shape)
    expected = predictor.ranker.log_time(rows, groups).reshape(shape)
    speed = predictor.predict(problems, kernels)
    names = [kernel.name for kernel in kernels]
    for number, problem in enumerate(problems):
        found = native.log_time(problem)
        assert (found.view(np.int64) == np.ascontiguousarray(expected[number]).view(np.int64)).all(), (
            problem.id
        )
        order = best_first(speed[number], names)
        ranked = native.rank(problem)
        assert [kernel for kernel, _ in ranked] == [kernels[i] for i in order], problem.id
        assert native.select(problem) == kernels[order[0]]
        if number % 50 == 0:
            assert (native.tflops(problem) == speed[number]).all()
            assert ranked == predictor.rank(problem, kernels)
            assert native.rank(problem, 3) == ranked[:3]


MOST_KERNELS = 80
"""Approximately, for a kind of a shipped model: large models and pools are slow in Python."""


def trained_kernels(folder: Path) -> list[Kernel]:
    return [parse_kernel_name(str(name)) for name in read_json(folder / MANIFEST_FILE)["kernels"]]


@pytest.mark.slow
@pytest.mark.parametrize("folder", EXACT, ids=lambda folder: folder.name)
def test_a_shipped_model_on_the_kernels_that_it_knows(folder: Path) -> None:
    of_kind: dict[Kind, list[Kernel]] = {}
    for kernel in trained_kernels(folder):
        of_kind.setdefault(kernel.kind, []).append(kernel)
    for kind, kernels in of_kind.items():
        some = kernels[:: max(1, len(kernels) // MOST_KERNELS)]
        assert_same(folder, some, random_problems(kind, PROBLEMS // len(of_kind)))


@pytest.mark.parametrize(("folder", "records"), VALIDATION)
def test_a_shipped_models_picks_for_the_validation_sets(folder: Path, records: Path) -> None:
    """Native code has Python's TFLOPS of the recorded kernels of every problem, and so its picks."""
    rows = merge_records([read_rows(records)])[0]
    predictor = Predictor.load(folder)
    tolerance = 0.0 if folder in EXACT else CLOSE
    differ = 0
    of_kind: dict[Kind, dict[Problem, list[Kernel]]] = {}
    for problem_id, names in rows.groupby("problem")["kernel"]:
        problem = problem_from_id(str(problem_id))
        if kind_refusal(predictor.spec, problem.kind) is not None:
            continue  # attention in fp16, which is measured and not ranked
        measured = [name for name in sorted(names) if predictor.ranks_named or not source_of(name)]
        of_kind.setdefault(problem.kind, {})[problem] = [parse_kernel_name(name) for name in measured]
    for problems in of_kind.values():
        native = NativeRanker.load(
            folder, list({k.name: k for pool in problems.values() for k in pool}.values())
        )
        expected = predictor.predict_each(list(problems), list(problems.values()))
        for (problem, pool), python in zip(problems.items(), expected, strict=True):
            found = native.tflops_among(problem, pool)
            # Python's choice: of equal times the first, as native code has it.
            assert np.log(python.max() / python[np.argmax(found)]) <= tolerance, problem.id
            np.testing.assert_allclose(
                np.log(found / found.max()), np.log(python / python.max()), rtol=0, atol=tolerance
            )
            differ += int(np.argmax(found) != np.argmax(python))
    assert of_kind
    assert differ == 0


@pytest.mark.slow
@pytest.mark.parametrize(("kernel_set", "problems"), [("default", PROBLEMS // 20), ("full", 3)])
def test_the_shipped_model_on_pools_that_it_does_not_know(kernel_set: str, problems: int) -> None:
    kernels = pool_of_kind(FORWARD, "gfx950", kernel_set)
    assert_same(OF_GFX950, kernels, random_problems(FORWARD, max(problems, 3), seed=1))


@pytest.mark.parametrize(("width", "log"), [(97, True), (97, False), (113, True)])
def test_a_published_model(records: pd.DataFrame, tmp_path: Path, width: int, log: bool) -> None:
    published_folder(tmp_path / "m", records, width, log)
    kernels = make_kernels(("compv3", "compv4", "mem"))
    assert_same(tmp_path / "m", kernels, random_problems(FORWARD, 60))


@pytest.mark.parametrize("recipe", ["physical", *slow("published", "log_time", "two_orders")])
def test_every_recipe(records: pd.DataFrame, tmp_path: Path, recipe: str) -> None:
    train(records, recipe_named(recipe).with_trees(20), n_splits=2).save(tmp_path / "m")
    kernels = [*make_kernels(("compv3", "compv5", "mem")), *pool_of_kind(FORWARD, "gfx950", "default")[:20]]
    assert_same(tmp_path / "m", kernels, random_problems(FORWARD, 40))


@pytest.mark.parametrize(
    "weights", [{"lambdarank": 1.0, "latency": 0.5}, *slow({"bandwidth": 2.0, "tflops": 1.0})]
)
def test_members_of_several_targets(records: pd.DataFrame, tmp_path: Path, weights: dict[str, float]) -> None:
    """A relative member's level comes from the mean of the absolute ones, in the order of the weights."""
    names = (*weights, "log_time")
    parts = tuple(TreePart(name, "grouped_conv_own_1", TreeSettings(trees=12), 2) for name in names)
    train(records, Recipe("several", "", parts, weights), n_splits=2).save(tmp_path / "m")
    assert_same(tmp_path / "m", make_kernels(("compv3", "mem")), random_problems(FORWARD, 40))


def test_every_column_of_the_shipped_networks_has_native_code() -> None:
    """Seconds where a pick of the shipped model takes a minute of Python: that its features can be traced."""
    kernels = kernels_by_name(Kind.of("gemm", dtype="bf16", layout="rrr"), 12)
    pool = Pool(kernels, shared_words(kernels[0].kind), problem_fields("gemm"), hardware_features("sm_90"))
    names = read_spec(data_folder("models") / "gemm_bf16_sm_90").feature_names
    assert len(pool.trace(schema_named("gemm_pool_2"), names)) == len(names)


@pytest.mark.parametrize("recipe", [*slow(NETWORK), BOTH], ids=["alone", "with trees"])
def test_networks(tmp_path: Path, recipe: Recipe) -> None:
    """Of rows and units that are no multiples of SIMD's blocks; in single precision."""
    assert recipe.network is not None
    part = replace(recipe.network, settings=replace(QUICK, hidden=(18, 7), epochs=4))
    train(made_pool_records(8), replace(recipe, network=part), n_splits=2).save(tmp_path / "m")
    kind = Kind.of("gemm", dtype="bf16", layout="rcr")
    known = [parse_kernel_name(name) for name in NAMES]
    predictor = Predictor.load(tmp_path / "m")
    for kernels in ([*known, *kernels_by_name(kind, 60)], known[:1]):
        native = NativeRanker.load(tmp_path / "m", kernels)
        for problem in random_problems(kind, 30):
            rows, groups = pair_columns([problem], kernels), constant_groups(1, len(kernels))
            expected = predictor.ranker.log_time(rows, groups)
            assert native.log_time(problem) == pytest.approx(expected, abs=CLOSE)
            assert native.select(problem) == kernels[int(np.argmin(expected))]


def test_figures_of_binaries(records: pd.DataFrame, tmp_path: Path) -> None:
    kernels = make_kernels(("compv3", "mem", "compv6"))
    code = made_code(make_kernels())
    columns = {name.removeprefix("code_"): c for name, c in code.columns(records["kernel"]).items()}
    part = TreePart("log_time", "launch", TreeSettings(trees=30, colsample_bytree=1))
    with_code = records.assign(**columns)
    train(with_code, Recipe("with_code", "", (part,)), n_splits=2).save(tmp_path / "m")
    problems = random_problems(FORWARD, 30)
    assert_same(tmp_path / "m", kernels, problems)
    assert_same(tmp_path / "m", kernels, problems, made_code(kernels))


@pytest.mark.parametrize("recipe", ["two_orders", "published"])
def test_gemm(tmp_path: Path, recipe: str) -> None:
    train(make_gemm_records(), recipe_named(recipe).with_trees(20), n_splits=2).save(tmp_path / "m")
    for layout in ("rcr", "ccr"):
        kind: Kind = Kind.of("gemm", dtype="bf16", layout=layout)
        kernels = pool_of_kind(kind, "gfx950", "default")[::7]
        assert_same(tmp_path / "m", kernels, random_problems(kind, 30))


def test_equal_predictions_keep_the_order_of_the_pool(records: pd.DataFrame, tmp_path: Path) -> None:
    train(records, recipe_named("log_time").with_trees(3), n_splits=2).save(tmp_path / "m")
    kernels = [k for k in pool_of_kind(FORWARD, "gfx950", "full")[::40] if isinstance(k.pipeline, str)]
    problem = make_problems(1)[0]
    ranked = NativeRanker.load(tmp_path / "m", kernels).rank(problem)
    assert len({tflops for _, tflops in ranked}) < len(kernels) / 2
    assert ranked == Predictor.load(tmp_path / "m").rank(problem, kernels)


def test_one_ranker_used_by_many_threads() -> None:
    kernels, problems = pool_of_kind(FORWARD, "gfx950", "default"), random_problems(FORWARD, 300)
    ranker = NativeRanker.load(OF_GFX950, kernels)
    expected = [ranker.rank(problem, 5) for problem in problems]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: [ranker.rank(problem, 5) for problem in problems], range(8)):
            assert found == expected


# ---- what is refused -----------------------------------------------------------------------------


def test_nothing_to_choose_from(records: pd.DataFrame) -> None:
    ranker, problem = NativeRanker.load(OF_GFX950, []), make_problems(1)[0]
    assert ranker.rank(problem) == []
    assert ranker.log_time(problem).shape == (0,)
    with pytest.raises(ModelError, match="no kernel to choose from"):
        ranker.select(problem)


def test_problems_and_kernels_of_another_kind() -> None:
    kernels, problem = make_kernels(), make_problems(1)[0]
    ranker = NativeRanker.load(OF_GFX950, kernels)
    for change, message in (
        ({"direction": "bwd_data"}, "trained for forward, not bwd_data"),
        ({"dtype": "fp16"}, "trained for bf16, not fp16"),
        ({"ndim": 3}, "trained for rank 2, not 3"),
    ):
        other = replace(problem, **change)
        for ask in (ranker.select, ranker.rank, ranker.log_time, ranker.tflops):
            with pytest.raises(ModelError, match=message):
                ask(other)
    gemm = random_problems(Kind.of("gemm", dtype="bf16", layout="rcr"), 1)[0]
    with pytest.raises(ModelError, match="the model predicts convolutions, not GemmProblem"):
        ranker.select(gemm)
    strange = parse_kernel_name("grouped_conv_bwd_data_bf16_2d_64x64x64_compv3")
    with pytest.raises(ModelError, match=r"of several: .* and grouped_conv_bwd_data"):
        NativeRanker.load(OF_GFX950, [*kernels, strange])
    with pytest.raises(ModelError, match="trained for forward, not bwd_data"):
        NativeRanker.load(OF_GFX950, [strange])
    with pytest.raises(ModelError, match="is for grouped_conv: gemm_bf16"):
        NativeRanker.load(
            OF_GFX950, pool_of_kind(Kind.of("gemm", dtype="bf16", layout="rcr"), "gfx950", "tiny")
        )


def test_problems_of_a_folder_are_reported(tmp_path: Path) -> None:
    good, kernels = OF_GFX950, make_kernels()
    with pytest.raises(ModelError, match="no model folder"):
        NativeRanker.load(tmp_path / "nowhere", kernels)

    def broken() -> Path:
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        shutil.copytree(good, tmp_path / "m")
        return tmp_path / "m"

    (broken() / "model_correction.lgbm.gz").unlink()
    with pytest.raises(ModelError, match=r"has no model_correction\.lgbm"):
        NativeRanker.load(tmp_path / "m", kernels)
    spec = json.loads((broken() / SPEC_FILE).read_text())
    features = len(spec["feature_names"])
    spec["feature_names"] = spec["feature_names"][:-1]
    (tmp_path / "m" / SPEC_FILE).write_text(json.dumps(spec))
    with pytest.raises(ModelError, match=r"feature_spec\.json is damaged or was changed"):
        NativeRanker.load(tmp_path / "m", kernels)
    seal_folder(tmp_path / "m", ModelError)
    said = rf"trained on {features} features, feature_spec\.json names {features - 1}"
    with pytest.raises(ModelError, match=said):
        NativeRanker.load(tmp_path / "m", kernels)
    assert read_spec(good).targets == ("physical", "correction")
