"""tile_engine's sweeps of GEMM kernels as kernel sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pools import gemm_pool
from tile_oracle.errors import RuleError
from tile_oracle.operation import Kind
from tile_oracle.pool import explain_pool_of_kind, load_rule_set

CONVOLUTION = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)


def sweep(**changed: Any) -> dict[str, Any]:
    """A small one in the form of tile_engine's configs/default_ci_config.json."""
    ones = {f"{of}_{axis}": {"values": [1]} for of in ("tile", "warp", "warp_tile") for axis in "mnk"}
    tiles = {
        **ones,
        "tile_m": {"min": 64, "max": 160, "step": 64},
        "tile_n": {"values": [128]},
        "tile_k": [64],
        "warp_m": {"values": [2, 1]},
        "warp_n": {"values": [2, 4]},
        "warp_tile_m": {"values": [16]},
        "warp_tile_n": {"values": [16]},
        "warp_tile_k": {"values": [16]},
    }
    traits = {
        "pipeline": {"values": ["compv3", "mem"]},
        "scheduler": {"values": ["intrawave", "interwave"]},
        "epilogue": {"values": ["cshuffle"]},
        **{f"pad_{axis}": {"values": [False]} for axis in "mn"},
        "pad_k": {"values": [False, True]},
        "persistent": {"values": [True]},
    }
    return {"tile_config": tiles, "trait_config": traits, "k_block_per_cu": 1, **changed}


def pool(path: Path, document: Any, layout: str = "rcr", dtype: str = "fp16") -> list[str]:
    path.write_text(json.dumps(document))
    return [kernel.name for kernel in gemm_pool(dtype, layout, "gfx950", str(path))]


def test_every_axis_is_combined_with_all_others(tmp_path: Path) -> None:
    names = pool(tmp_path / "ci.json", sweep())
    # Two rows of tiles, waves 2x2 and 1x4, mem in both schedules and compv3 in one, two paddings.
    assert len(names) == 2 * 2 * 3 * 2
    name = "gemm_fp16_rcr_mem_cshuffle_interwave_False_False_True_True_64x128x64_1x4x1_16x16x16"
    assert name in names
    refused = explain_pool_of_kind(
        Kind.of("gemm", dtype="fp16", layout="rcr"), "gfx950", str(tmp_path / "ci.json")
    ).refused
    assert {one.reason.split(":")[0] for one in refused} == {"waves", "scheduler"}


def test_a_sweep_is_for_every_layout_unless_it_states_one(tmp_path: Path) -> None:
    assert pool(tmp_path / "a.json", sweep(), layout="crr")
    said = sweep(datatype={"a": "fp16", "b": "fp16", "c": "fp16", "acc": "fp32"}, layout="rcr")
    assert pool(tmp_path / "b.json", said)
    with pytest.raises(RuleError, match="no rules for gemm fp16 crr on gfx950"):
        pool(tmp_path / "b.json", said, layout="crr")
    about = load_rule_set(str(tmp_path / "a.json")).about
    assert about == "tile_engine's sweep a.json, read as of --variant gemm_universal"


def traits(**more: Any) -> dict[str, Any]:
    return sweep(trait_config={**sweep()["trait_config"], **more})


def tiles(**more: Any) -> dict[str, Any]:
    return sweep(tile_config={**sweep()["tile_config"], **more})


@pytest.mark.parametrize(
    ("name", "document", "message"),
    [
        ("batched_ci.json", sweep(), "a sweep of the variant batched: kernels here are those of gemm_univ"),
        ("gemm_streamk.json", sweep(), "a sweep of the variant streamk"),
        ("x.json", sweep(variant="gemm_multi_d"), "a sweep of the variant gemm_multi_d"),
        ("x.json", sweep(k_block_per_cu=2), "k_block_per_cu: workgroups a compute unit are no part"),
        ("x.json", sweep(tile_shape={}), "unknown key 'tile_shape'; known keys: tile_config,"),
        ("x.json", traits(reduction_strategy={"values": ["atomic"]}), "trait_config.reduction_strategy"),
        ("x.json", traits(pipeline={"values": ["compv3", "wavelet"]}), "'wavelet' is not a pipeline"),
        ("x.json", tiles(tile_m={"min": 64, "max": 128}), "tile_config.tile_m: the key 'step' is missing"),
        ("x.json", tiles(tile_m={"min": 1, "max": 1 << 30, "step": 1}), "more than 10,000 values"),
        (
            "x.json",
            tiles(**{f"tile_{axis}": {"min": 1, "max": 64, "step": 1} for axis in "mnk"}),
            "tile_m x tile_n x tile_k make more than 10,000 tiles",
        ),
        ("x.json", tiles(tile_m={"values": [True]}), "'Truex128x64' is not of the form 64x64x64"),
        ("x.json", sweep(datatype={"a": "fp16", "b": "fp8"}), "datatype: kernels here multiply matrices of"),
    ],
)
def test_other_variants_and_mistakes_are_refused_by_name(
    name: str, document: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RuleError) as refused:
        pool(tmp_path / name, document)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_sweep_is_no_set_of_convolutions(tmp_path: Path) -> None:
    (tmp_path / "ci.json").write_text(json.dumps(sweep()))
    with pytest.raises(RuleError, match=r"only for other operations: --op gemm \(convolutions\)"):
        explain_pool_of_kind(CONVOLUTION, "gfx950", str(tmp_path / "ci.json"))
