"""How fast the model side is: importing, features, training, ranking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tests.measured_tables import gfx950_file
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.foreign.importers import import_file
from tile_oracle.model.fitting_model import models_for
from tile_oracle.model.predictor import Predictor
from tile_oracle.problem import Kind
from tile_oracle.training.cross_validation import out_of_fold
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.training_rows import training_rows


def test_import_10000_csv_rows(benchmark: Any, tmp_path: Path) -> None:
    """Limit: 2 s."""
    rows = pd.read_csv(gfx950_file("training_data_forward_bf16_20.csv"), dtype=str)
    many = pd.concat([rows.assign(N=str(int(step))) for step in range(1, 4)], ignore_index=True).head(10000)
    path = tmp_path / "many.csv"
    many.drop(columns=["tflops", "non_zero"]).to_csv(path, index=False)
    imported = benchmark.pedantic(import_file, (path, "gfx950"), rounds=3)
    assert imported.summary.rows == 10000
    assert benchmark.stats.stats.median < 2.0


@pytest.mark.parametrize("schema", ["grouped_conv_97", "grouped_conv_own_1"])
def test_features_of_100000_pairs(benchmark: Any, schema: str) -> None:
    """Limit: 1.5 s, columns and features together."""
    problems, kernels = make_problems(1000), make_kernels() * 10

    def compute() -> Any:
        return schema_named(schema).compute(pair_columns(problems, kernels), hardware_features("gfx950"))

    features = benchmark.pedantic(compute, rounds=3)
    assert features.shape == (100_000, len(schema_named(schema).names))
    assert benchmark.stats.stats.median < 1.5


@pytest.mark.parametrize("recipe", ["physical", "published"])
def test_training_on_the_public_file(benchmark: Any, recipe: str) -> None:
    """Limit: 30 s."""
    records = import_file(gfx950_file("training_data_forward_bf16_20.csv"), "gfx950", True).records
    rows = training_rows(records).table
    benchmark.pedantic(fit, (recipe_named(recipe), rows, "gfx950", Effort(0, 1)), rounds=1)
    assert benchmark.stats.stats.median < 30.0


@pytest.mark.parametrize(("problems", "kernels", "limit_s"), [(11, 20, 5.0), (300, 8, 15.0)])
def test_out_of_fold_for_a_run(benchmark: Any, problems: int, kernels: int, limit_s: float) -> None:
    """What the gate waits for when no model fits."""
    pool = make_kernels(("compv3", "compv4"))[:kernels]
    records = make_records(make_problems(problems), pool, arch="cpu")
    table = benchmark.pedantic(out_of_fold, (records, "cpu"), rounds=1)
    assert len(table) == problems * kernels
    assert benchmark.stats.stats.median < limit_s


def test_ranking_a_pool_of_300(benchmark: Any) -> None:
    """One problem, the pool of the published rules, the shipped model."""
    folder = models_for(Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2), "gfx950").folder
    assert folder is not None
    predictor, problem = Predictor.load(folder), make_problems(1)[0]
    kernels = make_kernels(("compv3", "compv4", "compv5", "compv6", "mem", "basic_v1")) * 5
    predicted = benchmark(predictor.predict, problem, kernels)
    assert np.isfinite(predicted).all()
