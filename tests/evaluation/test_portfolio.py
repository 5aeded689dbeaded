"""Portfolios: their values and bounds against all sets of small tables, and the command."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.errors import RuleError
from tile_oracle.evaluation.portfolio import PoolEfficiencies, bound_percent, choose, pool_efficiencies
from tile_oracle.operation import Kind
from tile_oracle.pool import load_rule_set, pool_of_kind
from tile_oracle.problem import kind_text
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import write_dataset

KIND = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)


def pool_of(table: np.ndarray) -> PoolEfficiencies:
    problems, kernels = (
        tuple(f"{word}{i:02}" for i in range(n)) for word, n in zip("pk", table.shape, strict=True)
    )
    return PoolEfficiencies(KIND, problems, kernels, table)


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(2, 7))
def test_no_set_exceeds_the_bounds_and_the_choice_keeps_its_guarantee(
    seed: int, problems: int, kernels: int
) -> None:
    random = np.random.default_rng(seed)
    table = random.random((problems, kernels)) * (random.random((problems, kernels)) < 0.7)
    pool = pool_of(table / np.maximum(table.max(axis=1, keepdims=True), 1e-12))
    for size, one in enumerate(choose(pool, kernels), start=1):
        best = max(pool.of(names).mean() for names in combinations(pool.kernels, size)) * 100
        reached = pool.of(one.kernels).mean() * 100
        assert reached == pytest.approx(one.summary.mean_percent)
        assert best * (1 - 1 / math.e) <= reached + 1e-9
        assert best - 1e-6 <= bound_percent(pool, one) <= pool.of(pool.kernels).mean() * 100 + 1e-6


def test_a_swap_replaces_what_greedy_choice_took_too_early() -> None:
    """The third kernel is the best alone, but the first two together are perfect."""
    table = np.array([[1, 0, 0.8], [1, 0, 0.8], [0, 1, 0.8], [0, 1, 0.8]])
    one, two = choose(pool_of(table), 2)
    assert one.kernels == ("k02",)
    assert two.kernels == ("k00", "k01")
    assert two.summary.mean_percent == 100


def test_kernels_that_add_nothing_are_not_chosen() -> None:
    assert len(choose(pool_of(np.array([[1.0, 0.5], [1.0, 0.9]])), 2)) == 1


def test_pairs_that_are_not_ok_or_not_measured_count_zero() -> None:
    kernels, problems = make_kernels()[:3], make_problems(2)
    records = make_records(problems, kernels)
    first, second = (problem.id for problem in problems)
    records.loc[(records["problem"] == first) & (records["kernel"] == kernels[0].name), "status"] = "wrong"
    unmeasured = (records["problem"] == second) & (records["kernel"] == kernels[1].name)
    (pool,) = pool_efficiencies(records[~unmeasured])
    at = dict(zip(pool.problems, pool.table, strict=True))
    column = {name: number for number, name in enumerate(pool.kernels)}
    assert at[first][column[kernels[0].name]] == 0
    assert at[second][column[kernels[1].name]] == 0
    assert pool.table.max(axis=1).tolist() == [1, 1]
    assert pool.measured_share == pytest.approx(5 / 6)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    kernels = make_kernels(("compv3", "compv4"))
    paths = tmp_path / "chosen.parquet", tmp_path / "judged.parquet"
    for seed, path in enumerate(paths):
        make_records(make_problems(25, seed), kernels, noise=0.02, seed=seed).drop(columns="time").to_parquet(
            path
        )
    return paths


def test_the_command_writes_a_list_that_kernel_sets_read(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = (tmp_path / name for name in ("few.json", "figures.json"))
    words = ["--sizes", "2,3", "--reach", "100", "-o", out, "--json", figures]
    assert main(["portfolio", str(files[0]), "--judge", str(files[1]), *map(str, words)]) == 0
    printed = capsys.readouterr().out
    assert "judged by" in printed
    assert "--kernels" in printed
    rules = load_rule_set(str(out))
    assert rules.kinds == (KIND,)
    kernels = {kernel.name for kernel in pool_of_kind(KIND, "gfx950", str(out))}
    assert len(kernels) == 3
    assert kernels == set(json.loads(out.read_text())["kernels"])
    with pytest.raises(RuleError, match="only for gfx950"):
        pool_of_kind(KIND, "sm_90", str(out))
    document = json.loads(figures.read_text())[kind_text(KIND)]
    assert [one["size"] for one in document["curve"]] == [1, 2, 3]
    curve = {str(one["size"]): one["mean_percent"] for one in document["curve"]}
    assert all(curve[size] <= bound + 1e-9 for size, bound in document["bounds"].items())
    assert set(document["sets"]) == set(document["bounds"]) == {"2", "3"}
    write_dataset(load_records([files[1]]).assign(arch="sm_90"), tmp_path / "other.parquet")
    assert main(["portfolio", str(files[0]), "--judge", str(tmp_path / "other.parquet")]) == 2
    assert "the records are of gfx950 and sm_90: a pool is of one" in capsys.readouterr().err


def test_kernels_takes_the_list(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "few.json"
    assert main(["portfolio", str(files[0]), "--sizes", "4", "-o", str(out)]) == 0
    capsys.readouterr()
    words = ["--arch", "gfx950", "--direction", "forward", "--dtype", "bf16", "--ndim", "2", "--list"]
    assert main(["kernels", "--kernels", str(out), *words]) == 0
    assert sorted(capsys.readouterr().out.split()) == json.loads(out.read_text())["kernels"]


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (["grouped_conv_forward_bf16_2d_nonsense"], r"kernels\[0\]"),
        ([], "at least one kernel"),
        (["triton.gemm.x"], r"kernels\[0\]"),
    ],
)
def test_a_bad_list_is_an_error_that_names_the_place(
    tmp_path: Path, kernels: list[str], message: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"arch": ["gfx950"], "kernels": kernels}))
    with pytest.raises(RuleError, match=message):
        load_rule_set(str(path))


@pytest.mark.parametrize("words", [["--sizes", "0"], ["--sizes", "4,x"]])
def test_bad_sizes_are_refused(
    files: tuple[Path, Path], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["portfolio", str(files[0]), *words]) == 2
    assert "portfolio: --sizes" in capsys.readouterr().err
