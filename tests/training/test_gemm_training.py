"""GEMM: features, training, prediction and evaluation, from records to picks."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.made_records import made_row, made_table
from tests.pools import gemm_pool
from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError
from tile_oracle.exploration.search import Space, search
from tile_oracle.exploration.suggest import suggest
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.groups import fold_codes, group_codes
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.aliases import find_aliases
from tile_oracle.model.predictor import Predictor
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
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
                rows.append(made_row(problem, kernel, true_time_ms(problem, kernel)))
    return made_table(rows, "gemm").assign(time=pd.NaT)


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


def test_a_binary_of_two_layouts_is_two_kernels() -> None:
    rows = training_rows(make_records().assign(source_hash="the same")).table
    for names in find_aliases(rows).groups().values():
        assert len({parse_kernel_name(name).layout for name in names}) == 1  # type: ignore[union-attr]


def test_only_what_can_run_problems_of_the_records_operation_is_suggested() -> None:
    records, problem = make_records(), GemmProblem("bf16", "rcr", 100, 72, 64)
    unpadded = parse_kernel_name(
        "gemm_bf16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x16"
    )
    with pytest.raises(ModelError, match="none of these kernels can compute any of these problems"):
        suggest(records, "gfx950", [problem], [unpadded], 3)
    conv = GroupedConvProblem("forward", "bf16", 2, N=1, C=8, K=8, G=1, Hi=9, Wi=9, Y=1, X=1)
    with pytest.raises(ModelError, match="the records are of gemm: suggestions are for problems of the same"):
        suggest(records, "gfx950", [conv], kernels(), 3)


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
    assert set(scores) & predictor.measured_kernels == set(scores) & set(make_records()["kernel"])


def test_a_search_on_the_cpu_proposes_usual_tile_depths() -> None:
    space = Space.of("cpu", GemmProblem("bf16", "rcr", 64, 64, 512))
    choices = ([0, 0, 0, 0, depth, 1, 0, 0, 0, 0, 0, 0] for depth in range(len(space.axes[4])))
    depths = {kernel.tile_k for choice in choices if (kernel := space.kernel(choice))}
    assert depths >= {64, 128, 256}
