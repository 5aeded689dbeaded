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

from tile_oracle.arch import load_arch
from tile_oracle.commands import evaluate as evaluate_command
from tile_oracle.commands import pick as pick_command
from tile_oracle.commands import search as search_command
from tile_oracle.commands import suggest as suggest_command
from tile_oracle.commands import train as train_command
from tile_oracle.commands.arguments import add_arguments
from tile_oracle.commands.evaluate import picker_for, rank_recorded
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.exploration.search import Space, best_of, search
from tile_oracle.exploration.suggest import suggest
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.groups import fold_codes, group_codes
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named, work_of
from tile_oracle.foreign.importers import write_records
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.aliases import find_aliases, merge
from tile_oracle.model.fitting_model import models_for
from tile_oracle.model.predictor import Predictor
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import gemm_pool
from tile_oracle.record.final import problems_of
from tile_oracle.record.schema import arrow_schema
from tile_oracle.training.cross_validation import out_of_fold
from tile_oracle.training.recipe import RECIPES
from tile_oracle.training.train import train
from tile_oracle.training.training_rows import training_rows

SIZES = [(m, n, k) for m in (1, 16, 200, 2048) for n, k in ((512, 1024), (4096, 512), (1536, 7168))]


def kernels(layout: str = "rcr") -> list[GemmKernel]:
    pool = gemm_pool("bf16", layout, "gfx950", "tiny")
    return [kernel for kernel in pool if isinstance(kernel, GemmKernel)]


def true_time_ms(problem: GemmProblem, kernel: GemmKernel) -> float:
    """A start and K steps, in waves over 256 compute units; only the tile matters."""
    rounds = -(-(-(-problem.M // kernel.tile_m) * -(-problem.N // kernel.tile_n)) // 256)
    steps = rounds * -(-problem.K // kernel.tile_k)
    return 0.003 + steps * 4e-9 * (kernel.tile_m * kernel.tile_n * kernel.tile_k) ** 0.9


def make_records(
    layouts: tuple[str, ...] = ("rcr", "rrr"), sizes: list[tuple[int, int, int]] = SIZES
) -> pd.DataFrame:
    rows = []
    for layout in layouts:
        for problem in (GemmProblem("bf16", layout, *size) for size in sizes):
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


@pytest.mark.slow
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
        values = dict(zip(schema.names, schema.compute(rows, hardware_features("gfx950")).T, strict=True))
        assert all(np.isfinite(column).all() for column in values.values())
        for share in ("fill", "fill_k", "tail", "overall_tile_efficiency"):
            if share in values:
                assert ((values[share] > 0) & (values[share] <= 1)).all()
    work = work_of(rows)
    assert set(work.flops) == {float(problem.flops)}
    assert set(work.bytes) == {float(problem.bytes)}


def test_own_features_match_a_hand_calculation() -> None:
    problem = GemmProblem("bf16", "rcr", 200, 4096, 512, 2)
    kernel = parse_kernel_name(
        "gemm_bf16_rcr_compv4_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16"
    )
    schema = schema_named("gemm_own_1")
    row = schema.compute(pair_columns([problem], [kernel]), hardware_features("gfx950"))[0]
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


def test_folds_keep_all_layouts_of_a_size_together() -> None:
    rows = make_records()
    codes = pd.Series(fold_codes(rows))
    assert codes.groupby([rows["M"], rows["N"], rows["K"]]).nunique().max() == 1
    assert codes.nunique() == len(SIZES)
    assert len(set(group_codes(rows))) == 2 * len(SIZES)
    assert len(set(fold_codes(rows, "family"))) == 3
    with pytest.raises(ModelError, match="grouping 'x' is not one of"):
        fold_codes(rows, "x")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["log_time", "two_orders", "published"])
def test_a_trained_model_picks_well_from_its_folder(recipe: str, tmp_path: Path) -> None:
    records = make_records()
    model = train(records, RECIPES[recipe].for_op("gemm").with_trees(100), n_splits=3)
    assert (model.spec.op_type, model.spec.dtype, model.spec.direction) == ("gemm_universal", "bf16", None)
    assert len(model.checks) == 2
    model.save(tmp_path / "model")
    predictor = Predictor.load(tmp_path / "model")
    evaluation = evaluate("x", records, rank_recorded(picker_for(str(predictor.folder), records), records)[0])
    assert evaluation.headlines["mean"].value > 97
    assert {"tiny M", "small M", "medium M", "large M", "rcr", "rrr", "oracle mem"} & set(
        evaluation.slices["slice"]
    ) >= {"tiny M", "large M", "rcr", "rrr"}
    found = {
        layout: models_for(Kind.of("gemm", dtype="bf16", layout=layout), "gfx950", [tmp_path]).folder
        for layout in ("rcr", "rrr", "crr")
    }
    model_folder = tmp_path / "model"
    assert found == {"rcr": model_folder, "rrr": model_folder, "crr": None}, "no record is of crr"
    convolution = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
    assert models_for(convolution, "gfx950", [tmp_path]).considered == ()
    problem = GemmProblem("bf16", "rcr", 32, 2048, 2048)
    ranked = predictor.rank(problem, kernels())
    assert sorted(k.name for k, _ in ranked) == sorted(k.name for k in kernels())
    with pytest.raises(ModelError, match="was trained for bf16, not fp16"):
        predictor.rank(GemmProblem("fp16", "rcr", 1, 1, 1), [])


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_reads_the_features_of_the_operation(name: str) -> None:
    if name in ("physical", "launch"):
        with pytest.raises(ModelError, match=f"recipe {name} .*GEMMs"):
            RECIPES[name].for_op("gemm")
    else:
        recipe = RECIPES[name].for_op("gemm")
        assert {schema_named(part.schema).op for part in recipe.trees} == {"gemm_universal"}
        assert recipe.name == name
    convolution = RECIPES[name].for_op("grouped_conv")
    assert {schema_named(part.schema).op for part in convolution.trees} == {"grouped_conv"}
    assert convolution.for_op("grouped_conv") == convolution


def test_gemm_takes_no_direction() -> None:
    with pytest.raises(ModelError, match="GEMMs, which have no direction 'forward'"):
        train(make_records(), direction="forward")


def twins() -> pd.DataFrame:
    """mem and compv3 of a tile have the same times, on 24 problems of one layout."""
    records = make_records(("rcr",))
    more = make_records(("rcr",), [(m + 8, n, k) for m, n, k in SIZES])
    return pd.concat([records, more], ignore_index=True)


def test_aliases_of_gemm_are_found_merged_and_picked() -> None:
    rows = training_rows(twins()).table
    aliases = find_aliases(rows)
    groups = list(aliases.groups().values())
    assert len(groups) == 3
    assert all(len({parse_kernel_name(name).tile for name in names}) == 1 for names in groups)
    merged = merge(rows, aliases)
    assert len(merged) == 24 * 3
    assert set(merged["layout"]) == {"rcr"}


def test_a_binary_of_two_layouts_is_two_kernels() -> None:
    rows = training_rows(make_records().assign(source_hash="the same")).table
    for names in find_aliases(rows).groups().values():
        assert len({parse_kernel_name(name).layout for name in names}) == 1  # type: ignore[union-attr]


def test_out_of_fold_predictions_use_the_other_problems() -> None:
    records = make_records()
    table = out_of_fold(records, "gfx950", n_splits=3)
    assert len(table) == len(records)
    assert set(table["fold"]) == {0, 1, 2}
    assert table.groupby("problem")["fold"].nunique().max() == 1


@pytest.mark.slow
def test_suggestions_are_unmeasured_supported_pairs() -> None:
    records = make_records()
    measured = records[records.index % 3 > 0]
    problems = [*problems_of(records), GemmProblem("bf16", "rcr", 100, 72, 64)]
    unpadded = parse_kernel_name(
        "gemm_bf16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x16"
    )
    pool = [*kernels(), *kernels("rrr"), unpadded]
    found = suggest(measured, "gfx950", problems, pool, 40)
    pairs = set(zip(found["problem"], found["kernel"], strict=True))
    assert len(pairs) == 40
    assert not pairs & set(zip(measured["problem"], measured["kernel"], strict=True))
    assert ("gemm-bf16-rcr-m100-n72-k64", unpadded.name) not in pairs
    pd.testing.assert_frame_equal(found, suggest(measured, "gfx950", problems, pool, 40))
    with pytest.raises(ModelError, match="none of these kernels can compute any of these problems"):
        suggest(records, "gfx950", problems[-1:], [unpadded], 3)
    conv = GroupedConvProblem("forward", "bf16", 2, N=1, C=8, K=8, G=1, Hi=9, Wi=9, Y=1, X=1)
    with pytest.raises(ModelError, match="the records are of gemm: suggestions are for problems of the same"):
        suggest(records, "gfx950", [conv], pool, 3)


@pytest.mark.slow
def test_a_search_proposes_gemm_kernels_that_can_be_built(tmp_path: Path) -> None:
    train(make_records(), RECIPES["log_time"].with_trees(100), n_splits=2).save(tmp_path / "m")
    predictor = Predictor.load(tmp_path / "m")
    problem = GemmProblem("bf16", "rcr", 100, 4096, 520)
    scores = search(predictor, problem, 90)
    assert len(scores) == 90
    arch = load_arch("gfx950")
    found = [parse_kernel_name(name) for name in scores]
    assert all(arch.refusal(k) is None and arch.problem_refusal(k, problem) is None for k in found)
    assert all(k.pad_k or 520 % k.tile_k == 0 for k in found)
    assert {kernel.pad_n for kernel in found} == {True, False}
    known = {f.kernel.name for f in best_of(scores, predictor, 90) if f.measured}
    assert known == set(scores) & set(make_records()["kernel"])


def test_a_search_on_the_cpu_proposes_usual_tile_depths() -> None:
    space = Space.of("cpu", GemmProblem("bf16", "rcr", 64, 64, 512))
    choices = ([0, 0, 0, 0, depth, 1, 0, 0, 0, 0, 0, 0] for depth in range(len(space.axes[4])))
    depths = {kernel.tile_k for choice in choices if (kernel := space.kernel(choice))}
    assert depths >= {64, 128, 256}


def said(command: object, *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    add_arguments(parser, command.ARGUMENTS)  # type: ignore[attr-defined]
    out = io.StringIO()
    with redirect_stdout(out):
        assert command.run(parser.parse_args(arguments)) == 0  # type: ignore[attr-defined]
    return out.getvalue()


@pytest.mark.slow
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
    text = said(
        pick_command, "gemm-bf16-rcr-m7-n2048-k512", "--predictions", "--model", str(model), "--top", "3"
    )
    assert text.count(" TFLOPS  gemm_bf16_rcr_") == 3
    assert "refuses" not in text
    names = tmp_path / "names.txt"
    names.write_text(kernels()[0].name.replace("_True_True_True_", "_True_True_False_"))
    text = said(
        pick_command,
        "gemm-bf16-rcr-m7-n8-k70",
        "--predictions",
        "--model",
        str(model),
        "--kernels",
        str(names),
        "--json",
    )
    assert '"refusal": "padding: pad_k is off and K = 70 is not a multiple of tile_k = 64"' in text
    text = said(suggest_command, str(records), "--problem-set", "gemm_validation", "--budget", "4")
    assert text.count("gemm-bf16-") == 4
    text = said(search_command, "gemm-bf16-rcr-m7-n2048-k512", "--model", str(model), "--budget", "40")
    assert "40 kernels" in text
    assert "buildable, not measured  gemm_bf16_rcr_" in text
