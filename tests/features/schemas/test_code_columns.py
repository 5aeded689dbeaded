"""Facts of kernel binaries as features: known for some kernels, missing for others, never required."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.commands.evaluate import picker_for, rank_recorded
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.folder_model import FolderModel, pool_of
from tile_oracle.features.code_table import CODE_COLUMNS, CodeTable
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.features.schemas.code_columns import CODE_FEATURES
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.trees import TreeSettings
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.training.recipe import Recipe, TreePart
from tile_oracle.training.train import train

CONV = parse_kernel_name("grouped_conv_forward_bf16_2d_64x128x64_compv3")
FIGURES = {"vgprs": 170, "agprs": 64, "sgprs": 40, "lds_bytes": 98304, "scratch_bytes": 16, "spills": 4}
PIPELINES = ("compv3", "mem", "compv6")
FEW = TreeSettings(trees=10)
RECIPE = Recipe(
    "with_code",
    "",
    (TreePart("log_time", "grouped_conv_own_3", TreeSettings(trees=150, colsample_bytree=1)),),
)


FIRST, SCHEMA = schema_named("grouped_conv_own_1"), schema_named("grouped_conv_own_3")
PROBLEM = GroupedConvProblem("forward", "bf16", 2, N=8, C=64, K=512, G=1, Hi=64, Wi=64, Y=1, X=1)


def features(figures: dict[str, int]) -> dict[str, float]:
    rows = pair_columns([PROBLEM], [CONV])
    rows |= CodeTable({CONV.name: figures} if figures else {}).columns(rows["kernel"])
    return dict(zip(SCHEMA.names, SCHEMA.compute(rows, hardware_features("gfx950"))[0], strict=True))


def test_the_later_version_begins_with_the_first() -> None:
    assert SCHEMA.features[: len(FIRST.features)] == FIRST.features
    assert "occupancy" in SCHEMA.names[len(FIRST.names) :]
    assert FIRST.optional == ()


def test_occupancy_worked_by_hand() -> None:
    found = features(FIGURES | {"binary_bytes": 4096})
    assert found["code_known"] == 1
    # 170 registers are given as 176; a lane of a SIMD has 512, a CU four SIMDs, a workgroup four waves.
    assert found["waves_per_simd"] == 2
    assert found["workgroups_by_registers"] == 2
    assert found["workgroups_by_lds"] == 1  # of 160 KiB
    assert found["workgroups_at_once"] == 1
    assert found["occupancy"] == 1 * 4 / 32
    assert found["log2_binary_bytes"] == 12
    assert found["code_lds_kib"] == 96
    assert found["code_spills"] == 4
    few = features(FIGURES | {"vgprs": 24, "lds_bytes": 0})
    assert few["waves_per_simd"] == 8  # no more slots, though 21 waves' registers fit
    assert few["workgroups_by_lds"] == few["workgroups_by_registers"] == 8
    assert found["log2_rounds_at_once"] == 3  # 512 x 4 tiles of 64 x 128 over 256 CUs are 8 a CU


def test_recorded_occupancy_is_used() -> None:
    rows = pair_columns([PROBLEM], [CONV])
    rows |= CodeTable({CONV.name: FIGURES}).columns(rows["kernel"])
    hardware = hardware_features("gfx950")
    for held, counted in ((0.0, 1.0), (2.0, 2.0), (5.0, 5.0)):
        row = SCHEMA.compute(
            {**rows, "code_workgroups_per_cu": np.array([held])}, hardware, ["workgroups_at_once"]
        )
        assert row[0, 0] == counted


def test_unknown_values_are_zero_and_reported() -> None:
    absent = features({})
    of_code = [feature.name for feature in CODE_FEATURES]
    rounds = absent.pop("log2_rounds_at_once")
    assert all(absent[name] == 0 for name in of_code if name in absent)
    assert rounds == absent["log2_rounds"]  # as if one workgroup fitted
    # Rows without the columns, or with nulls in them, are the same as rows of zeros.
    rows = pair_columns([PROBLEM], [CONV])
    nulls = {f"code_{name}": np.array([np.nan]) for name in CODE_COLUMNS}
    hardware = hardware_features("gfx950")
    assert np.array_equal(SCHEMA.compute(rows, hardware), SCHEMA.compute({**rows, **nulls}, hardware))


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(CODE_COLUMNS), st.integers(0, 10**6)), st.integers(0, 512))
def test_features_are_numbers_and_more_registers_never_hold_more_waves(
    figures: dict[str, int], more: int
) -> None:
    found = features(figures)
    assert all(np.isfinite(value) and value >= 0 for value in list(found.values())[-14:])
    assert 0 <= found["occupancy"] <= 1
    if figures.get("vgprs"):
        assert (
            features(figures | {"vgprs": figures["vgprs"] + more})["waves_per_simd"]
            <= found["waves_per_simd"]
        )


def spilling_records() -> tuple[pd.DataFrame, set[str]]:
    """Every fourth kernel spills, which its name does not show, and takes half as long again."""
    kernels = make_kernels(PIPELINES)
    records = make_records(make_problems(25), kernels)
    spilling = {kernel.name for kernel in kernels[::4]}
    slow = records["kernel"].isin(spilling)
    for name in ("latency_ms", "tflops"):
        records[name] *= np.where(slow, 1.5, 1.0) ** (1 if name == "latency_ms" else -1)
    records["spills"] = np.where(slow, 60.0, 0.0)
    return records.assign(vgprs=128, agprs=0, sgprs=32, lds_bytes=32768, scratch_bytes=0), spilling


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows all kernels, spilling or not, but two."""
    records, _ = spilling_records()
    known = records[~records["kernel"].isin(held_out())]
    path = tmp_path_factory.mktemp("models") / "m"
    train(known, RECIPE, n_splits=2).save(path)
    return path


def held_out() -> list[str]:
    _, spilling = spilling_records()
    return [sorted(spilling)[1]]


def test_a_model_uses_the_figures_of_its_folder_those_of_records_and_does_without(folder: Path) -> None:
    records, spilling = spilling_records()
    predictor = Predictor.load(folder)
    assert predictor.reads_code
    stored = json.loads((folder / "code_facts.json").read_text())["kernels"]
    assert set(stored) == set(records["kernel"]) - set(held_out())
    assert {name for name, figures in stored.items() if figures["spills"]} == spilling - set(held_out())
    problems = make_problems(6, seed=5)
    new = parse_kernel_name(held_out()[0])
    alone = predictor.predict(problems, [new])
    told = predictor.knowing(CodeTable.of(records)).predict(problems, [new])
    assert (told < 0.85 * alone).all()  # its spills are known now
    assert np.isfinite(alone).all()
    known = [parse_kernel_name(name) for name in sorted(stored)]
    for_known = predictor.predict(problems, known)
    assert np.array_equal(predictor.knowing(CodeTable.of(records)).predict(problems, known), for_known)
    own = records[records["kernel"].isin(held_out())]
    assert len(rank_recorded(picker_for(str(folder), own), own)[0]) == 25  # the records' own facts are used


def test_rows_are_learnt_without_their_figures_too(folder: Path) -> None:
    """A model whose table is lost still distinguishes tiles; its error comes from not knowing the spills."""
    records, spilling = spilling_records()
    (folder.parent / "blind").mkdir()
    for file in folder.iterdir():
        if file.name != "code_facts.json":
            (folder.parent / "blind" / file.name).write_bytes(file.read_bytes())
    error = {}
    for name in (folder.name, "blind"):
        model = FolderModel(folder.parent / name)
        ranked, _ = model.rank(make_problems(25), pool_of(make_kernels(PIPELINES)))
        both = ranked.merge(records[["problem", "kernel", "tflops"]])
        slow = both["kernel"].isin(spilling - set(held_out()))
        error[name] = np.abs(np.log(both["predicted_tflops"] / both["tflops"]))[slow].mean()
    assert error[folder.name] < 0.1
    assert error[folder.name] < error["blind"] < 0.35, error  # 0.41 if it is not learned


def test_a_warm_start_keeps_the_figures_that_the_old_model_knew(folder: Path) -> None:
    records, _ = spilling_records()
    some = records[records["kernel"].isin([*held_out(), *sorted(records["kernel"].unique())[-3:]])]
    grown = train(some, RECIPE, warm_start=folder, warm_trees=5)
    (trees,) = grown.ranker.trees
    assert set(trees.code.facts) == set(records["kernel"])


def test_a_model_of_the_first_version_does_not_read_figures(tmp_path: Path, records: pd.DataFrame) -> None:
    parts = (TreePart("tflops", "grouped_conv_97", FEW), TreePart("log_time", "grouped_conv_own_1", FEW))
    train(records, Recipe("two", "", parts), n_splits=2).save(tmp_path / "m")
    predictor = Predictor.load(tmp_path / "m")
    assert not predictor.reads_code
    assert not (tmp_path / "m" / "code_facts.json").exists()
    assert predictor.knowing(CodeTable({"x": {"vgprs": 1}})) is predictor


def test_records_without_any_figure_are_refused(records: pd.DataFrame) -> None:
    with pytest.raises(ModelError, match="binaries, which none of these records has"):
        train(records, RECIPE, n_splits=2)


def test_a_damaged_table_is_reported(folder: Path, tmp_path: Path) -> None:
    path = folder / "code_facts.json"
    for value in ({}, {"kernels": {"a": {"vgprs": "x"}}}, {"kernels": {"a": {"vgprs": -1}}}):
        with pytest.raises(ModelError, match=r"code_facts\.json: .*expected `(object|int)"):
            CodeTable.from_json(value, path)
    table = CodeTable({"a": {"vgprs": 3}})
    assert CodeTable.from_json(table.as_json(), path) == table
