"""GEMM: features, training, prediction and evaluation, from records to picks."""

from __future__ import annotations

import argparse
import io
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.commands import evaluate as evaluate_command
from harness.commands import predict as predict_command
from harness.commands import train as train_command
from harness.errors import ModelError
from harness.heuristic.columns import pair_columns
from harness.heuristic.evaluate import evaluate, rank_records
from harness.heuristic.folds import fold_codes, group_codes
from harness.heuristic.hardware import hardware_figures
from harness.heuristic.predictor import Predictor, find_model_of
from harness.heuristic.recipe import RECIPES
from harness.heuristic.schemas import schema_named, work_of
from harness.heuristic.suggest import suggest
from harness.heuristic.train import out_of_fold, train
from harness.kernel import GemmKernel, parse_kernel_name
from harness.pool import gemm_pool
from harness.problem import GEMM_LAYOUTS, GemmProblem
from harness.record.importers import write_records
from harness.record.schema import arrow_schema

SIZES = [(m, n, k) for m in (1, 16, 200, 2048) for n, k in ((512, 1024), (4096, 512), (1536, 7168))]


def kernels(layout: str = "rcr") -> list[GemmKernel]:
    pool = gemm_pool("bf16", layout, "gfx950", "tiny")
    return [kernel for kernel in pool if isinstance(kernel, GemmKernel)]


def true_time_ms(problem: GemmProblem, kernel: GemmKernel) -> float:
    """A start and K steps in rounds over 256 compute units; nothing but the tile decides."""
    rounds = -(-(-(-problem.M // kernel.tile_m) * -(-problem.N // kernel.tile_n)) // 256)
    steps = rounds * -(-problem.K // kernel.tile_k)
    return 0.003 + steps * 4e-9 * (kernel.tile_m * kernel.tile_n * kernel.tile_k) ** 0.9


def make_records(layouts: tuple[str, ...] = ("rcr", "rrr")) -> pd.DataFrame:
    rows = []
    for layout in layouts:
        for problem in (GemmProblem("bf16", layout, *size) for size in SIZES):
            for kernel in kernels(layout):
                time = true_time_ms(problem, kernel)
                rows.append(
                    {
                        **kernel.as_row(), **problem.as_row(), "run": "made", "round": 0, "op": "gemm",
                        "problem": problem.id, "kernel": kernel.name, "status": "ok", "latency_ms": time,
                        "tflops": problem.tflops(time), "target": "gfx950", "arch": "gfx950",
                        "device": "gfx950",
                    }
                )  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=arrow_schema("gemm").names).assign(time=pd.NaT)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.integers(1, 20000)] * 3),
    st.sampled_from(GEMM_LAYOUTS),
    st.sampled_from(("bf16", "fp8")),
    st.integers(1, 4),
)
def test_features_are_numbers_in_their_ranges(
    sizes: tuple[int, int, int], layout: str, dtype: str, split_k: int
) -> None:
    problem = GemmProblem(dtype, layout, *sizes, min(split_k, sizes[2]))
    pool = gemm_pool(dtype, layout, "gfx950")[::40]
    rows = pair_columns([problem], pool)
    for name in ("gemm_own_1", "gemm_universal_55", "gemm_universal_72"):
        schema = schema_named(name)
        values = dict(zip(schema.names, schema.compute(rows, hardware_figures("gfx950")).T, strict=True))
        assert all(np.isfinite(column).all() for column in values.values())
        for share in ("fill", "fill_k", "tail", "overall_tile_efficiency"):
            if share in values:
                assert ((values[share] > 0) & (values[share] <= 1)).all()
    work = work_of(rows)
    assert set(work.flops) == {float(problem.flops)}
    assert set(work.bytes) == {float(problem.bytes)}


def test_own_features_of_a_case_worked_by_hand() -> None:
    problem = GemmProblem("bf16", "rcr", 200, 4096, 512, 2)
    kernel = parse_kernel_name(
        "gemm_bf16_rcr_compv4_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16"
    )
    schema = schema_named("gemm_own_1")
    row = schema.compute(pair_columns([problem], [kernel]), hardware_figures("gfx950"))[0]
    found = dict(zip(schema.names, row, strict=True))
    assert found["log2_tiles_m"] == 1
    assert found["log2_tiles_n"] == 5
    assert found["log2_tiles_k"] == 2  # 512 in two parts of four steps
    assert found["log2_tiles"] == 7
    assert found["tail"] == 128 / 256
    assert found["fill_m"] == 200 / 256
    assert found["fill_k"] == found["fill_n"] == 1
    assert found["lds_kib"] == 2 * (128 + 128) * 64 * 2 / 1024
    assert found["a_columns"] == 0
    assert found["b_columns"] == 1
    assert found["vector_a_bytes"] == found["vector_b_bytes"] == 16


def test_cross_validation_holds_a_size_together_whatever_the_layout() -> None:
    rows = make_records()
    codes = pd.Series(fold_codes(rows))
    assert codes.groupby([rows["M"], rows["N"], rows["K"]]).nunique().max() == 1
    assert codes.nunique() == len(SIZES)
    assert len(set(group_codes(rows))) == 2 * len(SIZES)
    assert len(set(fold_codes(rows, "family"))) == 3
    with pytest.raises(ModelError, match="grouping 'x' is not one of"):
        fold_codes(rows, "x")


@pytest.mark.parametrize("recipe", ["default", "log_efficiency", "tflops_97", "log_time_merged"])
def test_a_trained_model_picks_well_from_its_folder(recipe: str, tmp_path: Path) -> None:
    records = make_records()
    model = train(records, recipe, n_splits=3)
    assert (model.spec.op_type, model.spec.dtype, model.spec.direction) == ("gemm_universal", "bf16", None)
    assert len(model.checks) == 2
    model.save(tmp_path / "model")
    predictor = Predictor.load(tmp_path / "model")
    evaluation = evaluate("x", records, rank_records(predictor, records))
    assert evaluation.headlines["mean"].value > 97
    assert {"tiny M", "small M", "medium M", "large M", "rcr", "rrr", "oracle mem"} & set(
        evaluation.slices["slice"]
    ) >= {"tiny M", "large M", "rcr", "rrr"}
    assert find_model_of(("gemm", "bf16", "crr"), "gfx950", models=tmp_path) == tmp_path / "model"
    assert find_model_of(("forward", "bf16", 2), "gfx950", models=tmp_path) is None
    problem = GemmProblem("bf16", "rcr", 32, 2048, 2048)
    ranked = predictor.rank(problem, kernels())
    assert sorted(k.name for k, _ in ranked) == sorted(k.name for k in kernels())
    with pytest.raises(ModelError, match="was trained for bf16, not fp16"):
        predictor.rank(GemmProblem("fp16", "rcr", 1, 1, 1), [])


@pytest.mark.parametrize("name", [n for n, r in RECIPES.items() if not (r.physical and not r.trees)])
def test_every_recipe_is_of_gemm_features_for_gemm(name: str) -> None:
    recipe = RECIPES[name].for_op("gemm")
    assert not recipe.aliases
    assert not recipe.physical
    assert {part.schema for part in recipe.trees} <= {"gemm_own_1", "gemm_universal_72"}
    assert set(recipe.picking_weights) == {part.target for part in recipe.trees}
    assert RECIPES[name].for_op("grouped_conv") is RECIPES[name]


def test_what_is_for_convolutions_alone_is_said() -> None:
    with pytest.raises(ModelError, match="physical time model is for convolutions; for gemm train log_time"):
        train(make_records(), "physical")
    with pytest.raises(ModelError, match="GEMM, which has no direction 'forward'"):
        train(make_records(), direction="forward")


def test_predictions_for_a_run_come_from_its_other_problems() -> None:
    records = make_records()
    table = out_of_fold(records, "gfx950", n_splits=3)
    assert len(table) == len(records)
    assert set(table["fold"]) == {0, 1, 2}
    assert table.groupby("problem")["fold"].nunique().max() == 1


def test_suggestions_need_the_physical_model() -> None:
    records = make_records()
    problem = GemmProblem("bf16", "rcr", 5, 64, 64)
    with pytest.raises(ModelError, match="for convolutions only"):
        suggest(records, "gfx950", [problem], kernels(), 3)


def said(command: object, *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)  # type: ignore[attr-defined]
    out = io.StringIO()
    with redirect_stdout(out):
        assert command.run(parser.parse_args(arguments)) == 0  # type: ignore[attr-defined]
    return out.getvalue()


def test_the_commands_train_evaluate_and_predict(tmp_path: Path) -> None:
    records, model = tmp_path / "gemm.parquet", tmp_path / "model"
    write_records(make_records(), records)
    text = said(
        train_command, str(records), "-o", str(model), "--folds", "3", "--quiet", "--recipe", "log_time"
    )
    assert "gemm_universal bf16 on gfx950, recipe log_time: 144 rows, 24 problems" in text
    text = said(evaluate_command, str(model), str(records))
    for part in ("24 of 24 problems", "tiny M", "large M", "rrr"):
        assert part in text
    text = said(predict_command, "gemm-bf16-rcr-m7-n2048-k512", "--model", str(model), "--top", "3")
    assert text.count("x") >= 3
