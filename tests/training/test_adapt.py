"""A model is corrected by a few measurements of another compiler."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems, make_records
from tests.samples import slow
from tests.training import test_grow_network as grow_network
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.aliases import Aliases
from tile_oracle.model.made_by import MadeBy
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import read_manifest
from tile_oracle.model.trees import TreeSettings
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.final import problems_of
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.training.adapt import (
    adapted,
    estimate_shifts,
    loop_changes,
    remembered,
    safe_shifts,
    save_adapted,
)
from tile_oracle.training.recipe import Recipe, TreePart, recipe_named
from tile_oracle.training.train import train

KERNELS = make_kernels(("compv3", "mem"))
SLOWER = {kernel.name: 1.5 for kernel in KERNELS if kernel.pipeline == "compv3"}
"""What the other compiler does: one pipeline gets slower by half."""


def measured_elsewhere(problems: int, seed: int) -> pd.DataFrame:
    records = make_records(make_problems(problems, seed=seed), KERNELS)
    times = records["latency_ms"] * records["kernel"].map(SLOWER).fillna(1.0)
    ratio = records["latency_ms"] / times
    return records.assign(latency_ms=times, tflops=records["tflops"] * ratio, toolchain="nvcc 13.0.88")


@pytest.fixture(scope="module", params=["log_time", *slow("lambdarank")])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / request.param
    recipe = recipe_named(request.param).with_trees(150)
    train(make_records(make_problems(40, seed=1), KERNELS), recipe, n_splits=2).save(folder)
    return folder


def efficiency(predictor: Predictor, records: pd.DataFrame) -> float:
    tflops = records.set_index(["problem", "kernel"])["tflops"]
    found = [
        tflops[problem.id, predictor.select(problem, KERNELS).name] / tflops[problem.id].max()
        for problem in problems_of(records)
    ]
    return float(np.mean(found))


def test_a_few_measurements_of_other_problems_recover_the_picks(folder: Path, tmp_path: Path) -> None:
    new = measured_elsewhere(30, seed=9)
    before = efficiency(Predictor.load(folder), new)
    few = measured_elsewhere(40, seed=5)
    few = few[~few["problem"].isin(new["problem"])]
    predictor, shifts = adapted(folder, few)
    save_adapted(predictor, shifts, few, tmp_path / "adapted")
    after = Predictor.load(tmp_path / "adapted")
    assert efficiency(after, new) > before + 0.5 * (1 - before)
    slow, fast = (
        np.mean([value for name, value in shifts.shift.items() if (name in SLOWER) == slower])
        for slower in (True, False)
    )
    assert shifts.scale * (slow - fast) / shifts.share == pytest.approx(np.log(1.5), rel=0.25)
    assert shifts.deviation["noise"] < 0.3
    problem = problems_of(new)[0]
    native = NativeRanker.load(tmp_path / "adapted", KERNELS)
    ranked = [kernel.name for kernel, _ in after.rank(problem, KERNELS)]
    assert [kernel.name for kernel, _ in native.rank(problem)] == ranked
    assert ranked != [kernel.name for kernel, _ in Predictor.load(folder).rank(problem, KERNELS)]
    manifest = read_manifest(tmp_path / "adapted")
    assert manifest["adapted"]["measurements"] == len(few)
    assert set(few["problem"]) < set(manifest["problems"])
    assert "nvcc 13.0.88" in MadeBy.of_model(tmp_path / "adapted").toolchains


def drawn(
    seed: int, slower: float, noise: float, measured: int
) -> tuple[np.ndarray, list[str], np.ndarray, np.ndarray]:
    """Problem, kernel, score and ln(time) of the first `measured` picks of 40 problems. One pipeline is
    slower than the score says."""
    random = np.random.default_rng(seed)
    names = [kernel.name for kernel in KERNELS]
    score = random.normal(0, 0.3, (40, len(names)))
    wrong = slower * np.array([name in SLOWER for name in names])
    time = score + wrong + random.normal(0, noise, score.shape)
    first = np.argsort(score, axis=1)[:, :measured]
    problems = np.repeat(np.arange(40), measured)
    rows = (problems, first.ravel())
    return problems, [names[one] for one in first.ravel()], score[rows], time[rows]


def picks_of(problems: np.ndarray, kernels: list[str], score: np.ndarray) -> dict[int, str]:
    return {int(one): kernels[np.flatnonzero(problems == one)[0]] for one in np.unique(problems)}


@given(seed=st.integers(0, 10_000))
@settings(max_examples=2)
def test_a_correction_is_kept_only_where_it_helps(seed: int) -> None:
    same, other = drawn(seed, 0.0, 0.3, 6), drawn(seed, 0.5, 0.05, 6)
    kept = safe_shifts(*other, picks_of(*other[:3]), scale=1.0)
    assert kept.share > 0
    assert kept.gain.low > 0
    assert kept.gain.judged == 40
    left = safe_shifts(*same, picks_of(*same[:3]), scale=1.0)
    assert left.share == 0 or left.gain.low > 0
    assert left.share > 0 or set(left.shift.values()) == {0.0}


def test_records_without_the_models_picks_change_nothing() -> None:
    problems, kernels, score, time = drawn(0, 0.5, 0.05, 6)
    found = safe_shifts(problems, kernels, score, time, dict.fromkeys(range(40), "another"), scale=1.0)
    assert found.share == 0.0
    assert (found.gain.judged, found.gain.points) == (0, None)
    assert set(found.shift.values()) == {0.0}


def test_a_model_without_gain_stays_as_it_is(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = make_records(make_problems(40, seed=5), KERNELS).assign(time=pd.Timestamp("2026-01-01", tz="UTC"))
    few = same.sample(60, random_state=1)
    write_dataset(few[few.groupby("problem")["kernel"].transform("size") > 1], tmp_path / "few.parquet")
    out = tmp_path / "out"
    assert main(["train", str(tmp_path / "few.parquet"), "--adapt", str(folder), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"no gain: {folder} stays as it is (")
    assert "suggest RECORDS --model" in said
    assert read_manifest(out)["adapted"]["share"] == 0.0
    assert read_manifest(out)["made_by"] == read_manifest(folder)["made_by"]
    problems = make_problems(5, seed=3)
    before, after = (Predictor.load(one).predict(problems, KERNELS) for one in (folder, out))
    np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_a_model_with_networks_is_adapted_whole(tmp_path: Path) -> None:
    """With each kind of member that models have."""
    records = grow_network.made_records(20)
    train(records, grow_network.BOTH, n_splits=2).save(tmp_path / "model")
    few = grow_network.made_records(16, seed=3, stages=3)
    predictor, shifts = adapted(tmp_path / "model", few)
    save_adapted(predictor, shifts, few, tmp_path / "adapted")
    problem, kernels = problems_of(few)[0], [parse_kernel_name(name) for name in grow_network.NAMES]
    again = Predictor.load(tmp_path / "adapted")
    assert again.rank(problem, kernels) == predictor.rank(problem, kernels)


def test_effects_of_unmeasured_kernels_follow_their_pipeline() -> None:
    random = np.random.default_rng(0)
    names = [kernel.name for kernel in KERNELS]
    problems = np.repeat(np.arange(40), 6)
    kernels = [names[2 + int(one)] for one in random.integers(0, len(names) - 2, 240)]
    score = random.normal(0, 1, 240)
    slow = np.array([name in SLOWER for name in kernels])
    time = 0.2 * score + 0.3 * slow + random.normal(0, 0.02, 240) + random.normal(0, 1, 40)[problems]
    found = estimate_shifts(problems, kernels, score, time, names)
    assert found.scale == pytest.approx(0.2, rel=0.15)
    unmeasured = {name in SLOWER: found.scale * found.shift[name] for name in names[:2]}
    assert unmeasured[True] - unmeasured[False] == pytest.approx(0.3, abs=0.08)


def test_one_exceptional_problem_does_not_shift_a_kernel() -> None:
    random = np.random.default_rng(0)
    names = [kernel.name for kernel in KERNELS[:8]]
    problems = np.repeat(np.arange(30), len(names))
    score = random.normal(0, 1, 240)
    true = dict(zip(names, random.normal(0, 0.1, len(names)), strict=True))
    time = 0.2 * score + np.tile(list(true.values()), 30) + random.normal(0, 0.02, 240)
    time[3] -= np.log(5)
    found = estimate_shifts(problems, names * 30, score, time, scale=0.2)
    error = np.array([found.scale * found.shift[name] - true[name] for name in names])
    assert np.ptp(error) < 0.03


def test_a_loop_that_the_compiler_left_rolled_is_no_exception() -> None:
    """Each kernel is measured once: its own effect alone would be taken for noise."""
    random = np.random.default_rng(0)
    names = [kernel.name for kernel in KERNELS[:16]]
    problems = np.repeat(np.arange(8), 4)
    kernels = [names[2 + int(one)] for one in random.integers(0, len(names) - 2, 32)]
    rolled = {names[0], kernels[0], kernels[9]}
    loop = {name: np.log(0.25) if name in rolled else 0.0 for name in names}
    noise = random.normal(0, 0.02, 32)
    time = 0.5 * np.array([name in rolled for name in kernels]) + noise + random.normal(0, 1, 8)[problems]
    with_loop, without = (
        estimate_shifts(problems, kernels, np.zeros(32), time, names, scale=1.0, loop=changes)
        for changes in (loop, None)
    )
    assert with_loop.loop == pytest.approx(0.5 / np.log(0.25), rel=0.2)
    assert without.loop == 0.0
    # Neither measured nor the only one of its tile and pipeline.
    assert with_loop.shift[names[0]] == pytest.approx(0.5, abs=0.1)
    assert without.shift[names[0]] < 0.25
    assert abs(with_loop.shift[names[1]]) < 0.1


def test_only_binaries_that_both_sides_know_change() -> None:
    before = CodeTable({"a": {"loop_matrix_instructions": 8}, "b": {"vgprs": 4}})
    now = CodeTable({name: {"loop_matrix_instructions": 2} for name in ("a", "b", "c")} | {"d": {"vgprs": 1}})
    assert loop_changes(before, now) == {"a": pytest.approx(np.log(3 / 9))}


@pytest.mark.slow
def test_binaries_that_were_not_measured_are_corrected_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def built(records: pd.DataFrame, rolled: set[str]) -> pd.DataFrame:
        loop = records["kernel"].map(lambda name: 2 if name in rolled else 16)
        return records.assign(loop_matrix_instructions=loop, binary_bytes=9000)

    records = built(make_records(make_problems(40, seed=1), KERNELS), set())
    part = TreePart("log_time", "launch", TreeSettings(trees=150), ensemble=4)
    train(records, Recipe("with_code", "", (part,)), n_splits=2).save(tmp_path / "model")
    rolled = {KERNELS[2].name, KERNELS[6].name, KERNELS[9].name}
    few = built(make_records(make_problems(30, seed=5), KERNELS), rolled)
    slower = few["kernel"].map(lambda name: 1.8 if name in rolled else 1.0)
    few = few.assign(latency_ms=few["latency_ms"] * slower, tflops=few["tflops"] / slower)
    unmeasured = KERNELS[9].name
    every, few = CodeTable.of(few), few[few["kernel"] != unmeasured]
    predictor, shifts = adapted(tmp_path / "model", few, binaries=every)
    _, unknown = adapted(tmp_path / "model", few)
    assert shifts.shift[unmeasured] == pytest.approx(np.log(1.8), rel=0.35)
    assert unknown.shift[unmeasured] < 0.5 * shifts.shift[unmeasured]
    timed = few.assign(time=pd.Timestamp("2026-01-01", tz="UTC"))
    write_dataset(timed, tmp_path / "few.parquet")
    asked = ["train", str(tmp_path / "few.parquet"), "--adapt", str(tmp_path / "model")]
    assert main([*asked, "-o", str(tmp_path / "out")]) == 0
    more = 100 * (2**-unknown.loop - 1)
    assert f"half the matrix instructions in a main loop: {more:+.0f} % time" in capsys.readouterr().out
    save_adapted(predictor, shifts, few, tmp_path / "adapted")
    again = Predictor.load(tmp_path / "adapted")
    assert remembered(again).facts[unmeasured]["loop_matrix_instructions"] == 2
    assert adapted(tmp_path / "adapted", few, binaries=every)[1].loop == 0.0


def test_too_few_measurements_and_other_kinds_are_errors(folder: Path) -> None:
    few = measured_elsewhere(3, seed=5)
    with pytest.raises(ModelError, match="it takes 20"):
        adapted(folder, few.head(10))
    with pytest.raises(ModelError, match="is of arch gfx950, the records have sm_90"):
        adapted(folder, few.assign(arch="sm_90"))


def test_shifts_survive_json_and_need_no_aliases() -> None:
    aliases = Aliases(shift={"a": 0.5})
    assert msgspec.convert(json.loads(json.dumps(aliases.as_json())), Aliases) == aliases
    assert aliases.change_scores
    assert not Aliases().change_scores
    assert "shift" not in Aliases().as_json()


def test_the_command_adapts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = measured_elsewhere(20, seed=5).assign(time=pd.Timestamp("2026-01-01", tz="UTC"))
    write_dataset(few, tmp_path / "few.parquet")
    asked = ["train", str(tmp_path / "few.parquet"), "--adapt", str(folder), "-o", str(tmp_path / "out")]
    assert main(asked) == 0
    assert f"corrected by {len(few):,} measurements of 20 problems" in capsys.readouterr().out
    assert Predictor.load(tmp_path / "out").ranker.aliases.shift
    assert main([*asked, "--recipe", "log_time"]) == 2
    assert "--adapt goes without --recipe" in capsys.readouterr().err
    assert main([*asked, "--build-dir", str(tmp_path)]) == 2
    assert "make the folder with tile-oracle build" in capsys.readouterr().err
    assert main(["train", asked[1], "-o", asked[-1], "--build-dir", str(tmp_path)]) == 2
    assert "--build-dir goes with --adapt" in capsys.readouterr().err
