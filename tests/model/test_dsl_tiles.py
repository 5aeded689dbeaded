"""Models of CK DSL over sweeps whose tiles imply neither waves nor warp tiles."""

from __future__ import annotations

from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest

from tests.model.published_folder import published
from tile_oracle.evaluation.folder_model import FolderModel
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.dataset import load_records

HEADER = "N,G,C,K,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,tile_m,tile_n,tile_k,pipeline,tflops,latency_us\n"
TILES = ("64,64,64", "32,64,32", "128,64,32", "256,128,32", "96,64,32", "16,64,64")


def sweep(path: Path) -> Path:
    rows = []
    for c in (64, 128, 256, 512):
        problem = GroupedConvProblem("forward", "fp16", 2, 1, c, 64, 1, 56, 56, 3, 3, 1, 1, 1, 1)
        for place, tile in enumerate(TILES):
            for pipeline in ("mem", "compv3"):
                us = 10.0 + c / 10 + 3 * place + (pipeline == "mem")
                rows.append(
                    f"1,1,{c},64,56,56,3,3,1,1,1,1,{tile},{pipeline},{problem.tflops(us / 1e3)},{us}\n"
                )
    path.write_text(HEADER + "".join(rows))
    return path


def model(folder: Path, names: list[str]) -> lgb.Booster:
    """A model whose columns read nothing but tile and pipeline of a kernel."""
    features = np.random.default_rng(3).uniform(0, 300, (400, len(names)))
    label = np.log1p(features.sum(axis=1))
    booster = lgb.train({"num_threads": 1, "verbosity": -1}, lgb.Dataset(features, label), 20)
    spec = {"tflops_log_transform": True, "feature_indices": list(range(len(names)))}
    return published(folder, booster, names, dtype="fp16", arch="gfx942", **spec)


COLUMNS = list(schema_named("grouped_conv_113").names)


def test_a_sweep_of_any_tile_is_records_that_state_what_is_known(tmp_path: Path) -> None:
    found = import_file(sweep(tmp_path / "conv_fp16.csv"), "gfx942")
    assert dict(found.summary.refused) == {}
    write_records(found.records, tmp_path / "sweep.parquet")
    records = load_records(tmp_path / "sweep.parquet")
    assert records["kernel"].nunique() == 2 * len(TILES)
    name = "grouped_conv_forward_fp16_2d_ckdsl.conv.pipeline=mem.tile_k=32.tile_m=96.tile_n=64"
    row = records[records["kernel"] == name].iloc[0]
    assert (row["tile_m"], row["tile_n"], row["tile_k"], row["pipeline"]) == (96, 64, 32, "mem")
    assert records.loc[records["kernel"] == name, ["wave_m", "warp_tile_m"]].isna().to_numpy().all()


def test_a_model_ranks_them_as_its_trainer_describes_them(tmp_path: Path) -> None:
    records = import_file(sweep(tmp_path / "conv_fp16.csv"), "gfx942").records
    kernels = [parse_kernel_name(name) for name in sorted(records["kernel"].unique())]
    booster = model(tmp_path / "m", COLUMNS)
    problem = GroupedConvProblem.from_id(str(records["problem"].iloc[0]))
    schema, hardware = schema_named("grouped_conv_113"), hardware_features("gfx942")
    features = schema.compute(pair_columns([problem], kernels), hardware)
    of_table = schema.compute(records, hardware)
    for found in (features, of_table):
        constants = {
            name: set(found[:, COLUMNS.index(name)]) for name in ("block_size", "is_intrawave", "has_si")
        }
        assert constants == {"block_size": {256.0}, "is_intrawave": {1.0}, "has_si": {0.0}}
        assert set(found[:, COLUMNS.index("gemm_m_per_block")]) == {16, 32, 64, 96, 128, 256}
    wanted = np.expm1(booster.predict(features)).tolist()
    assert Predictor.load(tmp_path / "m").predict(problem, kernels).tolist() == pytest.approx(wanted)
    for pairs in (1, 1_000_000):  # LightGBM, and native code
        table, _ = FolderModel(tmp_path / "m", pairs=pairs).rank([problem], lambda _: kernels)
        assert table["predicted_tflops"].tolist() == pytest.approx(wanted)
