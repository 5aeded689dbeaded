"""Auxiliary training data: trained on, never evaluated on, and without held-out shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.trees import TreeSettings, label
from tile_oracle.problem import problem_from_id
from tile_oracle.problem_set import format_problem_set
from tile_oracle.training import fit as fitting
from tile_oracle.training.cross_validation import selection_of
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import Recipe, TreePart, recipe_named
from tile_oracle.training.train import train
from tile_oracle.training.training_rows import (
    AUXILIARY,
    auxiliary_rows,
    is_auxiliary,
    not_of_shapes,
    own_rows,
    training_rows,
    with_auxiliary,
)

ORDER = Recipe("order", "", (TreePart("lambdarank", "grouped_conv_own_3", TreeSettings(trees=60)),))
TIME = Recipe("time", "", (TreePart("log_time", "grouped_conv_own_1", TreeSettings(trees=20)),))
SHAPE = ["N", "C", "K", "Hi", "Wi", "Y", "X"]
LAYER = ["C", "K", "Y", "X"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the session that judges a model writes its report there


def records_of(direction: str, problems: int, seed: int = 0, vgprs: int = 64) -> pd.DataFrame:
    """Synthetic measurements of a direction; vgprs: those of every binary."""
    kernels = [replace(kernel, direction=direction) for kernel in make_kernels()]
    asked = [replace(problem, direction=direction) for problem in make_problems(problems, seed)]
    return make_records(asked, kernels).assign(vgprs=vgprs)


def shapes(rows: pd.DataFrame, names: list[str]) -> set[tuple[int, ...]]:
    return set(rows[names].itertuples(index=False, name=None))


def test_auxiliary_rows_are_separated_from_own_rows() -> None:
    own = training_rows(records_of("forward", 3)).table
    others = training_rows(records_of("bwd_data", 5)).table
    both = with_auxiliary(own, others)
    assert is_auxiliary(both).sum() == len(others)
    pd.testing.assert_frame_equal(own_rows(both), own)
    assert own_rows(own) is own
    assert not is_auxiliary(own).any()


def test_another_compilers_or_devices_rows_of_the_direction_are_auxiliary() -> None:
    own = records_of("forward", 4).assign(device="GPU A", toolchain="clang 22.1.8 (wheel 1), ptxas 13.0")
    same = own.assign(toolchain="clang 22.1.8 (wheel 2), ptxas 13.0")
    nvcc, other = own.assign(toolchain="nvcc 13.0.88"), own.assign(device="GPU B")
    kind = {"arch": "gfx950", "dtype": "bf16", "direction": "forward"}
    rows = auxiliary_rows(pd.concat([nvcc, same, other]), own, kind)
    assert len(rows) == len(nvcc) + len(other)
    assert sorted(rows[AUXILIARY].unique()) == [1, 2]
    with pytest.raises(ModelError, match="there is none"):
        auxiliary_rows(same, own, kind)


def test_times_of_two_builds_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    own = training_rows(records_of("forward", 6)).table
    both = with_auxiliary(own, own.assign(latency_ms=10 * own["latency_ms"]))
    labelled: list[Any] = []

    def watched(target: Any, rows: pd.DataFrame, groups: Any) -> Any:
        labelled.append((groups, label(target, rows, groups)))
        return labelled[-1][1]

    monkeypatch.setattr(fitting, "label", watched)
    fit(ORDER, both, "gfx950", Effort())
    ((groups, labels),) = labelled
    assert len(set(groups)) == 2 * own["problem"].nunique()
    assert (labels[: len(own)] == labels[len(own) :]).all()


def test_each_row_has_the_facts_of_its_own_binary() -> None:
    rows = pd.DataFrame({"kernel": ["a", "a", "b"], "vgprs": [64.0, 128.0, None], "spills": [0.0, 3.0, None]})
    found = CodeTable({"a": {"vgprs": 64, "lds_bytes": 8}, "b": {"vgprs": 32}}).of_rows(rows)
    assert found["code_vgprs"].tolist() == [64, 128, 32]
    assert found["code_spills"].tolist() == [0, 3, 0]
    assert found["code_lds_bytes"].tolist() == [8, 8, 0]


def picked(rows: pd.DataFrame, tflops: Any) -> float:
    """The mean efficiency of the picks by these predictions of every row."""
    predictions = rows[["problem", "kernel"]].assign(predicted_tflops=tflops)
    return float(selection_of(rows, predictions)["efficiency"].mean())


@pytest.mark.slow
@settings(max_examples=25)
@given(
    taught=st.integers(1, 12),
    held=st.integers(1, 12),
    first=st.integers(0, 2),
    grouping=st.sampled_from(["problem", "family"]),
)
def test_auxiliary_rows_exclude_held_out_shapes(taught: int, held: int, first: int, grouping: str) -> None:
    """Problems of one seed have the same beginning, so some shapes are in both, in another direction."""
    auxiliary = training_rows(records_of("bwd_data", taught)).table
    own = training_rows(records_of("forward", held, seed=first)).table
    kept = not_of_shapes(auxiliary, own, grouping)
    names = SHAPE if grouping == "problem" else LAYER
    gone = shapes(auxiliary, names) & shapes(own, names)
    assert shapes(kept, names) == shapes(auxiliary, names) - gone
    assert len(not_of_shapes(auxiliary, own.iloc[:0])) == len(auxiliary)


@pytest.mark.slow
def test_a_folder_records_its_auxiliary_data(tmp_path: Path) -> None:
    own = records_of("forward", 6, vgprs=64)
    also = pd.concat([records_of("bwd_data", 5, vgprs=32), own])
    more = CodeTable({"elsewhere": {"vgprs": 8}})
    train(own, ORDER, n_splits=2, also=also, code=more).save(tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "train_manifest.json").read_text())
    assert manifest["taught_by"] == {"bwd_data": 5 * len(make_kernels())}
    assert manifest["valid_rows"] == len(own)
    assert manifest["unique_shapes"] == 6
    assert manifest["kernels"] == sorted(own["kernel"].unique())
    predictor = Predictor.load(tmp_path / "m")
    assert predictor.spec.direction == "forward"
    code = json.loads((tmp_path / "m" / "code_facts.json").read_text())["kernels"]
    assert set(code) == {*own["kernel"], "elsewhere"}
    out_of_fold = pd.read_parquet(tmp_path / "m" / "out_of_fold.parquet")
    assert set(out_of_fold["problem"]) == set(own["problem"])


def test_unusable_auxiliary_data_is_refused() -> None:
    own, others = records_of("forward", 6), records_of("bwd_data", 6)
    refused = "of bf16 on gfx950, with another direction than forward or from another compiler"
    with pytest.raises(ModelError, match=refused):
        train(own, ORDER, also=own)
    with pytest.raises(ModelError, match="auxiliary training data must be of bf16 on gfx950"):
        train(own, ORDER, also=others.assign(arch="gfx942"))
    with pytest.raises(ModelError, match="recipe physical is of one direction"):
        train(own, recipe_named("physical"), also=others)


def test_pairs_that_no_compiler_was_asked_for_have_no_build_of_their_own() -> None:
    """They have no compiler, so that they would be a build without an ok row."""
    own = records_of("forward", 2).assign(toolchain="clang 22.1.8", device="H200")
    other = own.assign(toolchain="nvcc 13.0.88")
    never = other.iloc[:3].assign(toolchain="", status="unsupported", latency_ms=float("nan"))
    kind = {"arch": "gfx950", "direction": "forward", "dtype": "bf16"}
    found = auxiliary_rows(pd.concat([other.iloc[3:], never]), own, kind)
    assert len(found) == len(other) - 3
    assert set(found[AUXILIARY]) == {1}


@pytest.mark.slow
def test_a_shipped_model_grows_by_the_records_of_another_compiler(tmp_path: Path) -> None:
    clang = records_of("forward", 8).drop(columns="time").assign(toolchain="clang 22.1.8", device="H200")
    held = clang["problem"].unique()[:2]
    (tmp_path / "held.csv").write_text(
        format_problem_set([problem_from_id(problem) for problem in held], ["", ""], "held out")
    )
    clang.to_parquet(tmp_path / "clang.parquet")
    nvcc = clang.assign(
        toolchain="nvcc 13.0.88",
        device="H100",
        latency_ms=2 * clang["latency_ms"],
        tflops=clang["tflops"] / 2,
    )
    nvcc.to_parquet(tmp_path / "nvcc.parquet")
    asked = ["model", "train", f"{tmp_path}/clang.parquet", "--problem-set", f"{tmp_path}/held.csv"]
    main([*asked, "-o", f"{tmp_path}/old", "--recipe", "log_time", "--folds", "2"])
    grown = ["--warm-start", f"{tmp_path}/old", "--warm-trees", "7", "--also", f"{tmp_path}/nvcc.parquet"]
    main([*asked, "-o", f"{tmp_path}/new", *grown])
    old, new = (json.loads((tmp_path / name / "train_manifest.json").read_text()) for name in ("old", "new"))
    assert new["total_n_estimators"] == old["total_n_estimators"] + 7
    assert set(new["made_by"]["toolchains"]) == {"clang 22.1.8", "nvcc 13.0.88"}
    assert set(new["problems"]) == set(clang["problem"]) - set(held)
    kept = pd.read_parquet(tmp_path / "new" / "other_builds.parquet")
    assert set(kept["toolchain"]) == {"nvcc 13.0.88"}
    assert not set(kept["problem"]) & set(held)
    for name in ("out_of_fold.parquet",):
        assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "old" / name).read_bytes()
    metrics = [
        json.loads((tmp_path / name / "cv_metrics_log_time.json").read_text()) for name in ("old", "new")
    ]
    assert metrics[1].pop("note").startswith("the cross-validation is of the model that this one was grown")
    assert metrics[0] == metrics[1]
    assert "Grown from `old` by 7 trees" in (tmp_path / "new" / "card.md").read_text()


@pytest.mark.slow
def test_shipping_trains_on_no_held_out_shapes(tmp_path: Path) -> None:
    own, others = records_of("forward", 6), records_of("bwd_data", 9)
    held = own["problem"].unique()[:2]
    problems = [problem_from_id(problem) for problem in held]
    (tmp_path / "held.csv").write_text(format_problem_set(problems, ["", ""], "held out"))
    for name, rows in (("own", own), ("others", others)):
        rows.drop(columns="time").to_parquet(tmp_path / f"{name}.parquet")
    words = ["ship", f"{tmp_path}/own.parquet", "--also", f"{tmp_path}/others.parquet"]
    words += ["--problem-set", f"{tmp_path}/held.csv", "-o", str(tmp_path / "m"), "--recipe", "log_time"]
    main([*words, "--folds", "2"])
    manifest = json.loads((tmp_path / "m" / "train_manifest.json").read_text())
    # Problems of one seed have the same beginning: the two are among the nine.
    assert manifest["taught_by"] == {"bwd_data": (9 - 2) * len(make_kernels())}
    trained = pd.read_parquet(tmp_path / "m" / "training.parquet")
    assert set(trained["problem"]) == set(own["problem"]) - set(held)


@pytest.mark.slow
def test_a_model_is_called_shipped_only_if_the_session_that_judges_it_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that grew from one that knows the held-out problems is not judged by them."""
    records = records_of("forward", 6)
    held = [problem_from_id(problem) for problem in records["problem"].unique()[:2]]
    (tmp_path / "held.csv").write_text(format_problem_set(held, ["", ""], "held out"))
    records.drop(columns="time").to_parquet(tmp_path / "all.parquet")
    words = ["model", "train", f"{tmp_path}/all.parquet", "--problem-set", f"{tmp_path}/held.csv"]
    old, new = f"{tmp_path}/old", f"{tmp_path}/new"
    assert main([*words, "-o", old, "--in-sample", "--recipe", "log_time", "--folds", "2"]) == 0
    assert f"shipped in {old} after " in capsys.readouterr().out
    assert list((tmp_path / "reports").glob("*/report.html")), "the report is kept where it says"
    assert main([*words, "-o", new, "--warm-start", old, "--warm-trees", "3"]) == 13
    said = capsys.readouterr().out
    assert "shipped in" not in said
    assert f"the session that judges {new} ended with status 13, see above" in said
