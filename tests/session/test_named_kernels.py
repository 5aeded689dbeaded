"""Sessions over kernels whose configurations are their own: records, report, and models that rank them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from tests.made_records import made_row, made_table
from tests.pytest_project import Project
from tile_oracle.errors import ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.kernel import NamedKernel, parse_kernel_name
from tile_oracle.model.ranker import constant_groups
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.training.neighbours import neighbour_predictions
from tile_oracle.training.train import train

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")
KERNELS = tuple(
    NamedKernel(KIND, "triton", "matmul", (("BLOCK_M", block), ("num_warps", 4))) for block in (16, 64, 128)
)
PROBLEMS = [
    GemmProblem("bf16", "rcr", m, n, 4096) for m in (1, 2, 4, 64, 96, 1024, 1500, 2048) for n in (4096, 8192)
]
SMALL_M = 16


def true_time_ms(problem: GemmProblem, kernel: NamedKernel) -> float:
    """Rows that a tile does not fill cost as much as others; larger tiles cost less for each row."""
    block = int(kernel.configuration["BLOCK_M"])
    rows = -(-problem.M // block) * block
    return 0.002 + 1e-8 * rows * problem.N * (1 + 16 / block)


def records() -> pd.DataFrame:
    """Every pair once. The smallest tile's declaration excludes large M."""
    rows = []
    for problem in PROBLEMS:
        for kernel in KERNELS:
            excluded = kernel is KERNELS[0] and problem.M > SMALL_M
            latency = None if excluded else true_time_ms(problem, kernel)
            why = {"status": "unsupported", "detail": "constraint: M <= 16"} if excluded else {}
            rows.append(made_row(problem, kernel, latency, "sm_90", **why))
    return made_table(rows, "gemm").assign(implementation="triton", samples=10)


def test_nearest_neighbours_predict_from_other_problems_alone() -> None:
    made = records()
    table = neighbour_predictions(made, KERNELS)
    assert set(table["problem"]) == {problem.id for problem in PROBLEMS}
    excluded = made[made["status"] == "unsupported"][["problem", "kernel"]]
    assert not table.merge(excluded, on=["problem", "kernel"]).shape[0], (
        "what a declaration excludes is no pick"
    )
    picks = table.sort_values("predicted_tflops", ascending=False).drop_duplicates("problem")
    chosen = dict(zip(picks["problem"], picks["kernel"], strict=True))
    speeds = made.set_index(["problem", "kernel"])["tflops"]
    shares = [speeds[problem, kernel] / speeds[problem].max() for problem, kernel in chosen.items()]
    assert np.mean(shares) > 0.9
    worst = speeds.groupby("problem").min() / speeds.groupby("problem").max()
    assert np.mean(worst) < 0.8, "a bad pick costs more than that"
    one = PROBLEMS[0].id
    changed = made.copy()
    own = (changed["problem"] == one) & (changed["status"] == "ok")
    changed.loc[own, "tflops"] = changed.loc[own, "tflops"].to_numpy()[::-1]
    again = neighbour_predictions(changed, KERNELS)
    of_one = table["problem"] == one
    assert again[again["problem"] == one]["predicted_tflops"].tolist() == pytest.approx(
        table[of_one]["predicted_tflops"].tolist()
    )
    with pytest.raises(ModelError, match="at least two problems"):
        neighbour_predictions(made[made["problem"] == PROBLEMS[0].id], KERNELS)


@pytest.mark.slow
def test_problems_of_other_types_are_not_ranked_by_a_named_model(make_project: Callable[[], Project]) -> None:
    project = make_project()
    made = records()
    other = made.assign(dtype="fp16")
    for column in ("problem", "kernel"):
        other[column] = other[column].str.replace("bf16", "fp16")
    path, folder = project.folder / "both.parquet", project.folder / "models" / "of_names"
    write_dataset(pd.concat([made, other], ignore_index=True), path)
    train(made, recipe="log_time", n_splits=2).save(folder)
    words = ("--oracle", str(path), "--model=of_names", "--allow=in-sample,no-baseline")
    done = project.pytest(*words, "--run-name=one")
    assert done.status == 0, done.output
    report = pd.read_parquet(project.folder / "reports" / "one" / "selection.parquet")
    coverage = report.groupby("dtype")["coverage"].agg(set).to_dict()
    assert coverage == {"bf16": {"covered"}, "fp16": {"not ranked"}}


def test_native_and_named_kernels_are_ranked_together() -> None:
    native = "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16"
    made = records()
    slow = made[made["kernel"] == KERNELS[1].name].copy()
    slow = slow.assign(kernel=native, latency_ms=slow["latency_ms"] * 4, tflops=slow["tflops"] / 4)
    both = pd.concat([made, slow], ignore_index=True)
    model = train(both, recipe="log_time", n_splits=2)
    assert model.spec.schema == "gemm_pool_2"
    assert model.spec.ranks_named
    kernels = [parse_kernel_name(name) for name in sorted(both["kernel"].unique())]
    rows = pair_columns(PROBLEMS, kernels)
    groups = constant_groups(len(PROBLEMS), len(kernels))
    predicted = model.ranker.tflops(rows, groups).reshape(len(PROBLEMS), len(kernels))
    assert (predicted.argmin(axis=1) == [one.name for one in kernels].index(native)).mean() > 0.9
