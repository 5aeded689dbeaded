"""Model folders of GEMM as CK Tile's newest trainer writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from tests.model.published_folder import QUIET, published
from tile_oracle.errors import ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.selector.ranker import NativeRanker

PROBLEMS = [GemmProblem("bf16", "rcr", m, 1024, k) for m in (16, 257, 1024) for k in (257, 512, 4096)]
TILES = ("256x256x64_2x2x1_32x32x16", "64x64x16_2x2x1_16x16x16", "128x64x64_4x1x1_32x32x16")


def kernels() -> list[Kernel]:
    return [
        parse_kernel_name(f"gemm_bf16_rcr_{pipeline}_{epilogue}_intrawave_True_True_True_False_{tile}")
        for pipeline in ("compv3", "compv4", "mem")
        for epilogue in ("cshuffle", "default")
        for tile in TILES
    ]


def folder(path: Path, **more: Any) -> lgb.Booster:
    """A model with categorical columns, trained on invented times."""
    schema = schema_named("gemm_universal_78")
    rows = pair_columns(PROBLEMS, kernels())
    features = schema.compute(rows, hardware_features("gfx950") | more.get("stated", {}))
    label = np.random.default_rng(5).uniform(10, 900, len(features)) + 40 * features[:, 75]
    data = lgb.Dataset(features, np.log1p(label), categorical_feature=[12, 22, 23, 24])
    settings = {**QUIET, "min_data_in_leaf": 2, "min_data_per_group": 2, "cat_smooth": 1.0}
    spec = {
        "op_type": "gemm_universal", "feature_engine": "GemmUniversalVecFeatureEngine",
        "feature_encoding_version": 1, "log_targets": ["tflops"], "params": {},
        "categorical_features": ["layout", "pipeline", "scheduler", "epilogue"], **more.get("spec", {}),
    }  # fmt: skip
    return published(path, lgb.train(settings, data, 30), schema.names, **spec)


def expected(booster: lgb.Booster, problem: GemmProblem, hardware: dict[str, float]) -> list[float]:
    rows = pair_columns([problem], kernels())
    found = schema_named("gemm_universal_78").compute(rows, hardware_features("gfx950") | hardware)
    return np.expm1(booster.predict(found)).tolist()


def test_a_model_of_78_columns_with_categorical_ones_ranks(tmp_path: Path) -> None:
    booster = folder(tmp_path / "m")
    assert "num_cat=0" not in booster.model_to_string().split("Tree=1")[0]
    predictor = Predictor.load(tmp_path / "m")
    for problem in PROBLEMS:
        assert predictor.predict(problem, kernels()).tolist() == pytest.approx(expected(booster, problem, {}))


def test_constants_that_a_folder_states_replace_the_architectures(tmp_path: Path) -> None:
    stated = {"hw_lds_capacity": 163840.0, "hw_lds_for_ratio": 163840.0, "hw_num_cus": 128.0}
    constants = {"lds_capacity": 163840, "num_cus": 128}
    booster = folder(tmp_path / "m", stated=stated, spec={"hardware": constants})
    plain = folder(tmp_path / "plain")
    predictor, problem = Predictor.load(tmp_path / "m"), PROBLEMS[4]
    found = predictor.predict(problem, kernels()).tolist()
    assert found == pytest.approx(expected(booster, problem, stated))
    assert predictor.ranker.hardware["hw_num_cus"] == 128
    assert Predictor.load(tmp_path / "plain").predict(problem, kernels()).tolist() == pytest.approx(
        expected(plain, problem, {})
    )


def test_a_column_that_nobody_publishes_is_named(tmp_path: Path) -> None:
    folder(tmp_path / "m")
    path = tmp_path / "m" / "feature_spec.json"
    spec = json.loads(path.read_text())
    spec["feature_names"][77] = "k_block_per_cu"
    path.write_text(json.dumps(spec))
    with pytest.raises(ModelError, match="needs features that no gemm_universal schema has: k_block_per_cu;"):
        Predictor.load(tmp_path / "m")


@pytest.mark.slow
def test_native_code_ranks_by_it_as_lightgbm_does(tmp_path: Path) -> None:
    folder(tmp_path / "m", spec={"hardware": {"num_cus": 128}})
    predictor, native = Predictor.load(tmp_path / "m"), NativeRanker.load(tmp_path / "m", kernels())
    for problem in PROBLEMS:
        assert native.rank(problem) == predictor.rank(problem, kernels())


def test_a_model_of_gfx1250_ranks_kernels_of_the_tensor_data_mover(tmp_path: Path) -> None:
    names = list(schema_named("gemm_universal_72").names)
    features = np.random.default_rng(1).uniform(0, 2000, (300, 72))
    booster = lgb.train({"verbosity": -1, "num_threads": 1}, lgb.Dataset(features, features[:, 0]), 5)
    booster.save_model(tmp_path / "model_tflops.lgbm")
    spec = {"op_type": "gemm_universal", "dtype": "fp16", "arch": "gfx1250", "feature_names": names}
    (tmp_path / "feature_spec.json").write_text(json.dumps(spec))
    tail = "intrawave_False_False_False_False_128x128x64_2x2x1_16x16x32"
    pool = [parse_kernel_name(f"gemm_fp16_rcr_{one}_{tail}") for one in ("comp_tdm_tdm", "compv4_cshuffle")]
    predictor = Predictor.load(tmp_path)
    assert predictor.ranker.hardware["hw_wavefront_size"] == 32
    ranked = predictor.rank(GemmProblem("fp16", "rcr", 1024, 1024, 1024), pool)
    assert {kernel.name for kernel, _ in ranked} == {kernel.name for kernel in pool}
