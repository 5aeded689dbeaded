"""Training networks: the gradient, the same bytes again, and what they learn."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from tests.processes import run_python
from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_codes
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.features.schemas.configuration import configuration
from tile_oracle.model.physics import nearness
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.ranker import Ranker
from tile_oracle.model.trees import TreeSettings
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.training import grow_network as module
from tile_oracle.training.cross_validation import cross_validate
from tile_oracle.training.fit import fit
from tile_oracle.training.grow_network import NetworkSettings, grow_network
from tile_oracle.training.recipe import NetworkPart, Recipe, TreePart, recipe_named
from tile_oracle.training.train import train
from tile_oracle.training.training_rows import auxiliary_rows, not_of_shapes, pair_columns_of, training_rows

SCHEMA = schema_named("gemm_pool_2")
QUICK = NetworkSettings(hidden=(24, 12), count=2, epochs=30)
NETWORK = Recipe("quick", "a small network", network=NetworkPart("gemm_pool_2", QUICK))
BOTH = replace(
    NETWORK,
    trees=(TreePart("lambdarank", "gemm_pool_2", TreeSettings(trees=20), 2),),
    weights={"lambdarank": 0.05, "network": 0.95},
)
NAMES = [
    f"gemm_bf16_rcr_triton.tiles.BLOCK_K=64.BLOCK_M={m}.BLOCK_N={n}.GROUP_M=8.num_stages={s}.num_warps=4"
    for m in (16, 64, 128)
    for n in (64, 128)
    for s in (3, 4)
]


def made_records(sizes: int = 40, seed: int = 0, stages: int = 4) -> pd.DataFrame:
    """Times of Triton kernels that follow a rule: rounds of tiles, steps, and kernels of so many stages are
    slower for deep problems."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(sizes):
        m, n, k = (int(2 ** generator.uniform(low, 13)) // 16 * 16 or 16 for low in (4, 6, 6))
        problem = GemmProblem("bf16", "rcr", m, n, k + 16 * number)
        for name in NAMES:
            known = configuration(name)
            tiles = -(-m // known["tile_m"]) * -(-n // known["tile_n"])
            steps = -(-tiles // 132) * -(-problem.K // 64)
            slow = 1.0 + 0.4 * (known["stages"] == stages) * (problem.K > 1000)
            time_ms = 0.002 + steps * slow * 1e-5 * (known["tile_m"] + known["tile_n"]) / 64
            rows.append(
                {
                    **dict.fromkeys(pair_columns_of("gemm")), **problem.as_row(), "run": "made", "round": 0,
                    "op": "gemm", "problem": problem.id,
                    "kernel": name, "status": "ok", "latency_ms": time_ms,
                    "tflops": problem.tflops(time_ms), "target": "sm_90", "arch": "sm_90", "device": "made",
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def grown(rows: pd.DataFrame, settings: NetworkSettings = QUICK, seed: int = 0) -> dict[str, Any]:
    log_time, groups = np.log(rows["latency_ms"].to_numpy(dtype=np.float64)), group_codes(rows)
    weight = nearness(log_time, groups)
    hardware = hardware_features("sm_90")
    member = grow_network(SCHEMA, rows, log_time, weight, groups, hardware, settings, seed)
    return member.as_json()


def mean_efficiency(rows: pd.DataFrame, score: Array) -> float:
    """Of the kernels with the highest score of their problem."""
    of_problem = rows["problem"].reset_index(drop=True)
    picked = rows.iloc[pd.Series(score).groupby(of_problem).idxmax()].set_index("problem")["tflops"]
    return float((picked / rows.groupby("problem")["tflops"].max()).mean())


def test_the_gradient_is_the_slope_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    sizes, starts = (7, 5, 4, 1), np.array([0, 6, 10, 19])
    table = generator.normal(size=(19, 7))
    goal, weight = generator.normal(scale=0.1, size=19), generator.uniform(0.2, 1.0, 19)
    marks = csr_matrix(table[:, 4:])
    data = module._Data(table[:, :4], marks, goal, weight, starts)  # type: ignore[arg-type]  # doubles
    weights = [generator.normal(scale=0.1, size=shape) for shape in pairwise(sizes)]
    biases = [generator.normal(scale=0.1, size=size) for size in sizes[1:]]
    adam = module._Adam(weights, biases, NetworkSettings(), 10)  # type: ignore[arg-type]
    problems = np.array([2, 0])
    rows = np.r_[10:19, 0:6]
    groups = np.repeat([0, 1], [9, 6])

    def loss() -> float:
        values = table[rows]
        for layer, bias in zip(weights[:-1], biases[:-1], strict=True):
            values = values @ layer + bias
            values = np.where(values > 0, values, 0.01 * values)
        error = (values @ weights[-1] + biases[-1])[:, 0] - goal[rows]
        of_rows = weight[rows]
        mean = np.bincount(groups, of_rows * error) / np.bincount(groups, of_rows)
        return float((of_rows * (error - mean[groups]) ** 2).sum() / of_rows.sum() / 2)

    settings = NetworkSettings(dropout=0.0)
    slopes, bias_slopes = module._gradients(data, problems, adam, settings, np.random.default_rng(0))
    for values, slope in zip((*weights, *biases), (*slopes, *bias_slopes), strict=True):
        for place in np.ndindex(values.shape):
            before, losses = values[place], []
            for change in (1e-5, -1e-5):
                values[place] = before + change
                losses.append(loss())
            values[place] = before
            assert slope[place] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=2e-3, abs=2e-6)


def test_equal_rows_and_seeds_make_equal_networks_that_read_no_binaries() -> None:
    rows = training_rows(made_records(12)).table
    short = NetworkSettings(hidden=(8,), count=1, epochs=3)
    first = grown(rows, short)
    assert json.dumps(first) == json.dumps(grown(rows, short))
    assert json.dumps(first) != json.dumps(grown(rows, short, seed=1))
    short = NetworkSettings(hidden=(8,), count=1, epochs=1)
    assert grown(rows.assign(vgprs=range(len(rows)), lds_bytes=1 << 14), short) == grown(rows, short)


_GROWN = """
import hashlib, json, os, sys
from tests.training.test_grow_network import grown, made_records
from tile_oracle.training.grow_network import NetworkSettings
from tile_oracle.training.training_rows import training_rows

rows = training_rows(made_records(12)).table
if sys.argv[1] == "1":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
found = grown(rows, NetworkSettings(hidden=(64,), count=3, epochs=2))
print(hashlib.sha256(json.dumps(found).encode()).hexdigest())
"""


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_threads() -> None:
    found = set()
    for count in ("1", "2", "7"):
        own = {**os.environ, "OPENBLAS_NUM_THREADS": count}
        found.add(run_python("-c", _GROWN, count, env=own, check=True).stdout)
    assert len(found) == 1


@pytest.mark.slow
def test_it_picks_better_for_unseen_families_than_the_roofline() -> None:
    rows = training_rows(made_records(80)).table
    table = cross_validate(NETWORK, rows, "sm_90", n_splits=2, grouping="family").table
    joined = table.merge(rows, on=["problem", "kernel"])
    learnt = mean_efficiency(joined, joined["predicted_tflops"].to_numpy())
    assert learnt > 0.95
    roofline = SCHEMA.compute(joined, hardware_features("sm_90"), ["roofline"])[:, 0]
    assert learnt > mean_efficiency(joined, -roofline) + 0.01


def test_networks_are_for_pools_of_several_sources() -> None:
    rows = training_rows(made_records(2)).table
    nothing = np.zeros(len(rows))
    with pytest.raises(ModelError, match="gemm_own_1"):
        grow_network(
            schema_named("gemm_own_1"), rows, nothing, nothing, group_codes(rows), {}, NetworkSettings()
        )
    rows = training_rows(made_records(4)).table
    with pytest.raises(ModelError, match="several sources"):
        fit(Recipe("none", "", network=NetworkPart()), rows, "sm_90")
    recipe = recipe_named("network").for_rows(training_rows(made_records(2)).table)
    assert {recipe.network.schema, *(part.schema for part in recipe.trees)} == {"gemm_pool_2"}
    assert recipe.orders_only


def test_a_folder_says_how_it_was_trained() -> None:
    trained = train(made_records(6), NETWORK, n_splits=2)
    assert trained.spec.targets == ("network",)
    assert trained.spec.params["network"]["epochs"] == QUICK.epochs
    assert trained.spec.ranks_named


def test_rows_of_another_type_of_the_same_size_teach() -> None:
    records = made_records(8)
    halves = records.assign(
        dtype="fp16",
        problem=records["problem"].str.replace("bf16", "fp16"),
        kernel=records["kernel"].str.replace("bf16", "fp16"),
    )
    own = halves[halves["problem"].isin(halves["problem"].unique()[:3])]
    trained = train(own, NETWORK, n_splits=2, also=pd.concat([records, own]))
    assert trained.spec.dtype == "fp16"
    assert trained.manifest["taught_by"] == {"bf16": len(records)}
    assert trained.manifest["unique_shapes"] == 3
    assert all("fp16" in name for name in trained.manifest["kernels"])


def test_a_held_out_shape_is_left_out_in_every_type_and_layout() -> None:
    rows = training_rows(made_records(6)).table
    others = pd.concat([rows.assign(layout=layout) for layout in ("rcr", "crr")], ignore_index=True)
    held = rows[rows["problem"] == rows["problem"].iloc[0]].assign(dtype="fp16")
    kept = not_of_shapes(others, held)
    assert len(kept) == len(others) - 2 * len(held)


def test_another_type_of_another_size_does_not_teach() -> None:
    records = made_records(2)
    with pytest.raises(ModelError, match="must be of fp16 or a type of its size on sm_90, with another"):
        auxiliary_rows(records.assign(dtype="fp8"), records, {"arch": "sm_90", "dtype": "fp16"})


def test_another_device_teaches_a_type_whose_size_is_not_known() -> None:
    own = made_records(3).assign(dtype="fp4")
    others = made_records(2).assign(dtype="fp4", device="another")
    rows = auxiliary_rows(pd.concat([others, own]), own, {"arch": "sm_90", "dtype": "fp4"})
    assert len(rows) == len(training_rows(others).table)


def test_a_model_of_networks_and_trees_is_saved_and_loaded_and_grows(tmp_path: Path) -> None:
    records = made_records(4)
    trained = train(records, BOTH, n_splits=2)
    trained.save(tmp_path / "m")
    read = Predictor.load(tmp_path / "m").ranker
    rows = training_rows(records).table
    groups = group_codes(rows)
    assert [member.name for member in read.members] == ["lambdarank", "network"]
    assert read.log_time(rows, groups).tolist() == trained.ranker.log_time(rows, groups).tolist()
    further = train(records, warm_start=tmp_path / "m", warm_trees=7, n_splits=2)
    assert [member.name for member in further.ranker.members] == ["lambdarank", "network"]
    assert further.manifest["n_estimators_of"]["lambdarank"] == {"prev": 40, "new": 14}


@pytest.mark.slow
def test_grown_networks_know_another_device_by_problems_of_their_own(tmp_path: Path) -> None:
    train(made_records(30), BOTH, n_splits=2).save(tmp_path / "m")
    old = Predictor.load(tmp_path / "m").ranker
    rows = made_records(90, seed=1, stages=3)
    seen, unseen = (rows[rows["problem"].isin(part)] for part in np.split(rows["problem"].unique(), [60]))
    further = train(seen, warm_start=tmp_path / "m", warm_trees=10, n_splits=2).ranker

    def by_network(ranker: Ranker) -> float:
        rows = training_rows(unseen).table
        columns = {name: rows[name].to_numpy() for name in rows}
        return mean_efficiency(rows, -ranker.network.log_time(columns, ranker.hardware))

    assert by_network(further) > by_network(old) + 0.02
    assert np.array_equal(further.network.inputs.mean, old.network.inputs.mean)
