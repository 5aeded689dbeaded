"""Sweeps of CK DSL's convolutions and of rocKE's GEMMs become records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

HEADER = "N,G,C,K,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,tile_m,tile_n,tile_k,pipeline,tflops,latency_us\n"
PROBLEM = GroupedConvProblem("forward", "fp16", 2, 1, 64, 64, 1, 56, 56, 3, 3, 1, 1, 1, 1)


def row(tile: str, pipeline: str, latency_us: float) -> str:
    return f"1,1,64,64,56,56,3,3,1,1,1,1,{tile},{pipeline},{PROBLEM.tflops(latency_us / 1000)},{latency_us}\n"


def test_shards_of_a_sweep_are_read(tmp_path: Path) -> None:
    path = tmp_path / "conv_fp16_gfx950.csv"
    path.write_text(
        HEADER
        + row("64,64,64", "mem", 12.5)
        + HEADER
        + row("16,64,128", "compv4", 25)
        + row("96,64,32", "mem", 9)
    )
    imported = import_file(path, "gfx950")
    records = imported.records
    assert set(records["problem"]) == {PROBLEM.id}
    assert records["latency_ms"].tolist() == pytest.approx([0.0125, 0.025, 0.009])
    tiles = [[64, 64, 64], [16, 64, 128], [96, 64, 32]]
    assert records[["tile_m", "tile_n", "tile_k"]].to_numpy().tolist() == tiles
    assert records["pipeline"].tolist() == ["mem", "compv4", "mem"]
    assert records["kernel"].iloc[0].endswith("_ckdsl.conv.pipeline=mem.tile_k=64.tile_m=64.tile_n=64")
    assert imported.summary.rows == 3
    assert dict(imported.summary.refused) == {}


@pytest.mark.parametrize("tile", ["0", "-64", "48.5", "big", ""])
def test_a_tile_that_is_none_is_refused(tmp_path: Path, tile: str) -> None:
    path = tmp_path / "conv_fp16_gfx950.csv"
    path.write_text(HEADER + row("64,64,64", "mem", 12.5) + row(f"64,{tile},64", "mem", 9))
    with pytest.raises(RecordError, match=f"row 2 of the CK DSL sweep: tile_n = '{tile}' is no positive"):
        import_file(path, "gfx950")


@pytest.mark.parametrize("pipeline", ["direct", "stream", "compv4.tile_k=1"])
def test_a_row_of_an_unknown_pipeline_is_refused(tmp_path: Path, pipeline: str) -> None:
    path = tmp_path / "conv_fp16_gfx950.csv"
    path.write_text(HEADER + row("64,64,64", "mem", 12.5) + row("64,64,64", pipeline, 9))
    imported = import_file(path, "gfx950")
    assert imported.records["pipeline"].tolist() == ["mem"]
    assert list(imported.summary.refused.values()) == [1]


@pytest.mark.slow
def test_waves_may_be_given_in_columns(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    warps = ",warp_m,warp_n,warp_k,warp_tile_m,warp_tile_n,warp_tile_k\n"
    path.write_text(HEADER.strip() + warps + row("96,64,32", "mem", 9).strip() + ",2,2,1,16,16,16\n")
    with pytest.raises(RecordError, match="give it with --dtype"):
        import_file(path, "gfx950")
    records = import_file(path, "gfx950", dtype="bf16").records
    assert records[["dtype", "tile_m", "wave_n", "warp_tile_k"]].to_numpy().tolist() == [["bf16", 96, 2, 16]]


def test_a_sweep_of_rocke_is_read_by_its_columns(tmp_path: Path) -> None:
    problem = GemmProblem("fp16", "rcr", 256, 512, 1024)
    row = {
        "op_type": "gemm_universal", "arch": "gfx950", "kernel_name": "a",
        "m": 256, "n": 512, "k": 1024, "split_k": 1,
        "measured_tflops": problem.tflops(0.02), "latency_ms": 0.02, "bandwidth_gb_s": 50.0,
        "is_valid": True, "run_id": 0, "dtype": "fp16", "layout": "rcr",
        "tile_m": 128, "tile_n": 64, "tile_k": 32, "warp_m": 2, "warp_n": 2, "warp_k": 1,
        "warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 32,
        "pipeline": "compv3",
        "scheduler": "intrawave", "epilogue": "cshuffle", "pad_m": False, "pad_n": False,
        "pad_k": False, "persistent": False,
    }  # fmt: skip
    none = dict.fromkeys(("measured_tflops", "latency_ms", "bandwidth_gb_s"), 0.0)
    bad = {**row, **none, "tile_m": 256, "is_valid": False}
    pd.DataFrame([row, bad]).to_parquet(tmp_path / "training.parquet")
    found = import_file(tmp_path / "training.parquet", "gfx950")
    assert found.records["status"].tolist() == ["ok", "wrong"]
    assert found.records["problem"].tolist() == [problem.id] * 2
    assert found.records["kernel"].tolist() == [
        f"gemm_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_{tile}x64x32_2x2x1_16x16x32"
        for tile in (128, 256)
    ]
    for op, why in (("conv_implicit_gemm", "strides nor padding"), ("rmsnorm2d", "have no times")):
        pd.DataFrame([{**row, "op_type": op}]).to_parquet(tmp_path / "other.parquet")
        with pytest.raises(
            RecordError, match=f"is a sweep of rocKE of {op}, which is not read: its rows .*{why}"
        ):
            import_file(tmp_path / "other.parquet", "gfx950")
