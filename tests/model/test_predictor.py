"""Model folders, published ones and ours: which load, and the errors of those that do not."""

from __future__ import annotations

import gzip
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems
from tests.model.published_folder import QUIET, published
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.folder_model import FolderModel, pool_of
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.feature_table import FeatureSchema
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.model_folder import packed_booster, read_forest
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import write_folder
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

SUFFIX = ("is_intrawave", "has_dsb", "has_si", "is_basic", "is_compv6", "is_mem")
THREE_D = ("is_3d", "Di", "Z", "Do", "stride_d", "pad_d", "dilation_h", "dilation_w")
LACKING = {83: SUFFIX + THREE_D, 91: SUFFIX, 97: (), 113: ()}
"""Columns of a published model -> those of a schema that it does not read."""


def columns_of(width: int) -> tuple[FeatureSchema, list[str]]:
    schema = schema_named("grouped_conv_113" if width > 97 else "grouped_conv_97")
    lacking = LACKING.get(width, schema.names[89:101])
    return schema, [name for name in schema.names if name not in lacking]


def published_folder(folder: Path, records: pd.DataFrame, width: int, log: bool = True) -> lgb.Booster:
    """A folder as the published trainer writes it: uncompressed, with few keys."""
    schema, names = columns_of(width)
    assert len(names) == width
    features = schema.compute(records, hardware_features("gfx950"), names)
    label = records["tflops"].to_numpy(dtype=np.float64)
    data = lgb.Dataset(features, np.log1p(label) if log else label)
    more = {"log_targets": ["tflops"] if log else [], "categorical_features": ["pipeline"], "params": {}}
    return published(folder, lgb.train(QUIET, data, 40), names, **more)


@pytest.mark.parametrize("width", [83, 91, 97, 101])
@pytest.mark.parametrize("log", [True, False])
def test_published_folders_of_every_width_load(
    records: pd.DataFrame, tmp_path: Path, width: int, log: bool
) -> None:
    booster = published_folder(tmp_path / "m", records, width, log)
    problems, kernels = make_problems(3, seed=7), make_kernels()
    schema, names = columns_of(width)
    features = schema.compute(pair_columns(problems, kernels), hardware_features("gfx950"), names)
    raw = np.asarray(booster.predict(features)).reshape(3, len(kernels))
    predictor = Predictor.load(tmp_path / "m")
    expected = np.expm1(raw) if log else raw
    assert predictor.predict(problems, kernels) == pytest.approx(expected)
    assert predictor.predict(problems[1], kernels) == pytest.approx(expected[1])
    ranked = predictor.rank(problems[1], kernels)
    assert [tflops for _, tflops in ranked] == sorted((t for _, t in ranked), reverse=True)
    assert predictor.select(problems[1], kernels) == kernels[int(np.argmax(expected[1]))]


@pytest.mark.parametrize("log", [True, False])
def test_ck_dsl_models_name_their_columns_and_log_transform(
    records: pd.DataFrame, tmp_path: Path, log: bool
) -> None:
    booster = published_folder(tmp_path / "m", records, 113, log)
    path = tmp_path / "m" / "feature_spec.json"
    spec = json.loads(path.read_text())
    del spec["log_targets"], spec["categorical_features"]
    good = {**spec, "feature_indices": list(range(113)), "tflops_log_transform": log}
    path.write_text(json.dumps(good))
    problem, kernels = make_problems(1, seed=7)[0], make_kernels()
    rows = pair_columns([problem], kernels)
    raw = booster.predict(schema_named("grouped_conv_113").compute(rows, hardware_features("gfx950")))
    expected = np.expm1(raw) if log else raw
    assert Predictor.load(tmp_path / "m").predict(problem, kernels) == pytest.approx(expected)
    for wrong, message in (
        ({"feature_indices": [0, 1]}, "does not name a column for each of the 113"),
        ({"tflops_log_transform": "yes"}, "neither true nor false"),
        ({"log_targets": [] if log else ["tflops"]}, "contradicts log_targets"),
    ):
        path.write_text(json.dumps({**good, **wrong}))
        with pytest.raises(ModelError, match=message):
            Predictor.load(tmp_path / "m")


def test_old_and_new_models_are_read_concurrently(records: pd.DataFrame, tmp_path: Path) -> None:
    published_folder(tmp_path / "old", records, 83)
    train(records, recipe_named("log_time").with_trees(20), n_splits=2).save(tmp_path / "new")
    problem, kernels = make_problems(1, seed=3)[0], make_kernels()

    def pick(name: str) -> str:
        return Predictor.load(tmp_path / name).select(problem, kernels).name

    with ThreadPoolExecutor(4) as pool:
        picks = list(pool.map(pick, ["old", "new"] * 6))
    assert len(set(picks[::2])) == len(set(picks[1::2])) == 1
    assert not [p for p in (tmp_path / "new").iterdir() if p.name.endswith(".lgbm")]  # never unpacked on disk


def test_nothing_to_predict(records: pd.DataFrame, tmp_path: Path) -> None:
    published_folder(tmp_path / "m", records, 97)
    predictor, problem = Predictor.load(tmp_path / "m"), make_problems(1)[0]
    assert predictor.predict(problem, []).shape == (0,)
    assert predictor.predict([], make_kernels()).shape == (0, 10)
    with pytest.raises(ModelError, match="no kernel to choose from"):
        predictor.select(problem, [])


def test_problems_of_a_folder_are_reported(records: pd.DataFrame, tmp_path: Path) -> None:
    good = tmp_path / "good"
    published_folder(good, records, 97)
    spec = json.loads((good / "feature_spec.json").read_text())

    def broken(**changes: object) -> Path:
        folder = tmp_path / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        (folder / "feature_spec.json").write_text(json.dumps({**spec, **changes}))
        return folder

    names = spec["feature_names"]
    cases = {
        "no model folder": tmp_path / "nowhere",
        "no grouped_conv schema has: moon_phase": broken(feature_names=[*names[:-1], "moon_phase"]),
    }
    for message, folder in cases.items():
        with pytest.raises(ModelError, match=message):
            Predictor.load(folder)
    for message, changes in {
        "97 features, feature_spec.json names 96": {"feature_names": names[:-1]},
        "feature_names is empty": {"feature_names": []},
        "feature_names: expected `array`, got `str`": {"feature_names": "N"},
        "targets.0.: expected `str` matching": {"targets": ["../../etc"]},
        "has no model_latency.lgbm or model_bandwidth.lgbm, which feature": {
            "targets": ["latency", "bandwidth"]
        },
        "feature_encoding_version: expected `int` <= 1": {"feature_encoding_version": 2},
        "a model of operation 'fmha_fwd' cannot be used: its 68 columns have no names": {
            "op_type": "fmha_fwd"
        },
        "no target 'joy'": {"targets": ["joy"]},
        "do not name members": {"picks": {"latency": 1.0}},
        "NaN is no number of JSON": {"picks": {"tflops": float("nan")}},
        r"aliases\.offset\[...\]: expected `float`, got `str`": {"aliases": {"offset": {"a": "x"}}},
    }.items():
        with pytest.raises(ModelError, match=message):
            Predictor.load(broken(**changes))
    for text, message in (("{", "is not JSON"), ("[]", "does not hold a JSON object")):
        (broken() / "feature_spec.json").write_text(text)
        with pytest.raises(ModelError, match=message):
            Predictor.load(tmp_path / "broken")


def test_a_published_folder_may_lack_files(records: pd.DataFrame, tmp_path: Path) -> None:
    """The public GEMM folders list three targets and have one; some folders have only a model."""
    folder = tmp_path / "m"
    published_folder(folder, records, 97)
    problem, kernels = make_problems(1, seed=3)[0], make_kernels()
    whole = Predictor.load(folder).predict(problem, kernels)
    path = folder / "feature_spec.json"
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({**spec, "targets": ["tflops", "latency", "bandwidth"]}))
    predictor = Predictor.load(folder)
    assert predictor.predict(problem, kernels).tolist() == whole.tolist()
    with pytest.raises(ModelError, match="the model does not predict latency; it has tflops"):
        predictor.predict(problem, kernels, "latency")
    path.unlink()
    with pytest.raises(ModelError, match=r"has model_tflops.lgbm but no feature_spec.json, which names the"):
        Predictor.load(folder)


@pytest.mark.parametrize("damage", [b"", b"garbage", b"tree\nversion=v4\n"])
def test_a_damaged_model_file(records: pd.DataFrame, tmp_path: Path, damage: bytes) -> None:
    booster = published_folder(tmp_path / "m", records, 97)
    (tmp_path / "m" / "model_tflops.lgbm").write_bytes(damage)
    with pytest.raises(ModelError, match="not a complete LightGBM model"):
        Predictor.load(tmp_path / "m")
    (tmp_path / "m" / "model_tflops.lgbm").unlink()
    packed = packed_booster(booster)
    for data, message in (
        (packed[: len(packed) // 2], "cut off"),
        (b"not gzip at all", "not a whole gzip file"),
    ):
        (tmp_path / "m" / "model_tflops.lgbm.gz").write_bytes(data)
        with pytest.raises(ModelError, match=message):
            Predictor.load(tmp_path / "m")
    (tmp_path / "m" / "model_tflops.lgbm.gz").write_bytes(packed)
    Predictor.load(tmp_path / "m")
    assert gzip.decompress(packed).startswith(b"tree")


def test_writing_replaces_only_a_model_folder(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_folder(folder, {"feature_spec.json": b"{}", "model_tflops.lgbm.gz": b"1"})
    (folder / "cards" / "set").mkdir(parents=True)
    (folder / "cards" / "set" / "baseline.json").write_text("kept")
    write_folder(folder, {"feature_spec.json": b"{ }"})
    assert not (folder / "model_tflops.lgbm.gz").exists()
    assert (folder / "cards" / "set" / "baseline.json").read_text() == "kept"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"")
    with pytest.raises(ModelError, match="not a model folder"):
        write_folder(tmp_path / "photos", {"feature_spec.json": b"{}"})


@pytest.mark.slow
def test_a_model_refuses_problems_of_another_kind(records: pd.DataFrame, tmp_path: Path) -> None:
    train(records, recipe_named("log_time").with_trees(5), n_splits=2).save(tmp_path / "fwd")
    problem = make_problems(1)[0]
    other = type(problem)(**{**problem.as_row(), "direction": "bwd_data"})
    with pytest.raises(ModelError, match="trained for forward, not bwd_data"):
        Predictor.load(tmp_path / "fwd").predict(other, make_kernels())
    half = type(problem)(**{**problem.as_row(), "dtype": "fp16"})
    deep = type(problem)(**{**problem.as_row(), "ndim": 3})
    for one, message in ((half, "for bf16, not fp16"), (deep, "for rank 2, not 3")):
        with pytest.raises(ModelError, match=message):
            Predictor.load(tmp_path / "fwd").predict(one, make_kernels())
    strange = parse_kernel_name("grouped_conv_bwd_data_bf16_2d_64x64x64_compv3")
    with pytest.raises(ModelError, match="is not a candidate"):
        Predictor.load(tmp_path / "fwd").predict(problem, [*make_kernels(), strange])


# Models of every objective of LightGBM: predictions as LightGBM's own, or refused with the reason.

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
    """A folder of a booster trained so."""
    random = np.random.default_rng(seed)
    label = records["tflops"].to_numpy(dtype=np.float64) * random.uniform(0.5, 2.0, len(records))
    if how.get("num_class"):
        label = np.arange(len(label)) % how["num_class"]
    elif how["objective"] in ("binary", "cross_entropy", "cross_entropy_lambda"):
        label = (label > np.median(label)).astype(float)
    data = lgb.Dataset(features_of(records), np.log1p(label) if log else label)
    booster = lgb.train({"num_threads": 1, "verbosity": -1, "seed": seed, **how}, data, 12)
    return published(folder, booster, schema_named(SCHEMA).names, log_targets=["tflops"] if log else [])


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
