"""Models of every objective of LightGBM: predictions as LightGBM's own, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.folder_model import FolderModel, pool_of
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.model.model_folder import read_forest
from tile_oracle.model.predictor import Predictor

SCHEMA = "grouped_conv_97"
FOREST = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
SUMS: list[dict[str, Any]] = [
    {"objective": name} for name in ("regression", "regression_l1", "huber", "fair", "quantile", "mape")
]
OTHERS: list[dict[str, Any]] = [
    {"objective": "poisson"},
    {"objective": "gamma"},
    {"objective": "tweedie", "tweedie_variance_power": 1.3},
    {"objective": "regression", "reg_sqrt": True},
    {"objective": "regression", **FOREST},
    {"objective": "poisson", **FOREST},
]


def name(how: dict[str, Any]) -> str:
    return "-".join(map(str, how.values()))


def features_of(rows: Any) -> Any:
    return schema_named(SCHEMA).compute(rows, hardware_features("gfx950"))


def folder_of(
    folder: Path, records: pd.DataFrame, how: dict[str, Any], seed: int = 0, log: bool = False
) -> lgb.Booster:
    """A folder as other trainers write it. log: the label is log1p of TFLOPS."""
    random = np.random.default_rng(seed)
    label = records["tflops"].to_numpy(dtype=np.float64) * random.uniform(0.5, 2.0, len(records))
    if how.get("num_class"):
        label = np.arange(len(label)) % how["num_class"]
    elif how["objective"] in ("binary", "cross_entropy", "cross_entropy_lambda"):
        label = (label > np.median(label)).astype(float)
    data = lgb.Dataset(features_of(records), np.log1p(label) if log else label)
    booster = lgb.train({"num_threads": 1, "verbosity": -1, "seed": seed, **how}, data, 12)
    folder.mkdir(exist_ok=True)
    booster.save_model(folder / "model_tflops.lgbm")
    spec = {
        "op_type": "grouped_conv", "dtype": "bf16", "arch": "gfx950",
        "feature_names": list(schema_named(SCHEMA).names), "targets": ["tflops"],
        "log_targets": ["tflops"] if log else [],
    }  # fmt: skip
    (folder / "feature_spec.json").write_text(json.dumps(spec))
    return booster


def predicted(booster: lgb.Booster, log: bool) -> Any:
    """TFLOPS of some pairs as LightGBM itself predicts them."""
    raw = booster.predict(features_of(pair_columns(make_problems(3, seed=7), make_kernels())))
    return np.expm1(raw) if log else raw


def tflops(predictor: Predictor) -> Any:
    return np.ravel(predictor.predict(make_problems(3, seed=7), make_kernels()))


@pytest.mark.parametrize("how", [*SUMS, *OTHERS], ids=name)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), log=st.booleans())
def test_predictions_are_lightgbms_own(
    records: pd.DataFrame, tmp_path: Path, how: dict[str, Any], seed: int, log: bool
) -> None:
    booster = folder_of(tmp_path / "m", records, how, seed, log)
    expected = np.maximum(predicted(booster, log), 1e-9)
    np.testing.assert_allclose(tflops(Predictor.load(tmp_path / "m")), expected, rtol=1e-9)
    # With many pairs native code would score them.
    ranked, _ = FolderModel(tmp_path / "m", pairs=10**6).rank(
        make_problems(3, seed=7), pool_of(make_kernels())
    )
    np.testing.assert_allclose(ranked["predicted_tflops"], expected, rtol=1e-9)


@pytest.mark.parametrize("how", OTHERS, ids=name)
def test_native_code_and_exports_refuse_what_is_no_sum_of_leaves(
    records: pd.DataFrame, tmp_path: Path, how: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(tmp_path / "m", records, how)
    with pytest.raises(ModelError, match=r"native code cannot score .*: it .*; LightGBM can"):
        read_forest(tmp_path / "m", "tflops")
    few = ["--kernel-set", "tiny"]
    assert main(["export", str(tmp_path / "m"), "-o", str(tmp_path / "cpp"), *few]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "objective=" in said or "random forest" in said


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"objective": "binary"}, r"predicts a likelihood \(objective=binary\): train a regression"),
        ({"objective": "cross_entropy"}, r"predicts a likelihood \(objective=cross_entropy\)"),
        ({"objective": "cross_entropy_lambda"}, r"predicts a likelihood \(objective=cross_entropy_lambda\)"),
        ({"objective": "multiclass", "num_class": 3}, r"several outputs \(num_class=3\): train a regression"),
        ({"objective": "multiclassova", "num_class": 3}, r"several outputs \(num_class=3\)"),
        ({"objective": "regression", "linear_tree": True}, "linear trees, which are not read: train with"),
    ],
)
def test_others_are_refused_with_the_true_reason(
    records: pd.DataFrame, tmp_path: Path, how: dict[str, Any], said: str
) -> None:
    folder_of(tmp_path / "m", records, how)
    with pytest.raises(ModelError, match=said):
        Predictor.load(tmp_path / "m")


def test_windows_line_ends_change_nothing(records: pd.DataFrame, tmp_path: Path) -> None:
    booster = folder_of(tmp_path / "m", records, {"objective": "regression"})
    model = tmp_path / "m" / "model_tflops.lgbm"
    model.write_bytes(model.read_bytes().replace(b"\n", b"\r\n"))
    np.testing.assert_allclose(tflops(Predictor.load(tmp_path / "m")), predicted(booster, False), rtol=1e-9)
    assert len(read_forest(tmp_path / "m", "tflops").num_leaves)
