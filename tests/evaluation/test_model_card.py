"""The card of a model says what the folder's files say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tests.samples import sampled
from tile_oracle.cli import main
from tile_oracle.evaluation.model_card import model_card
from tile_oracle.features.schemas.roofline import FITTED_TO
from tile_oracle.files.data_files import data_folder
from tile_oracle.judge.baseline import load_baseline
from tile_oracle.model.store import baseline_files, model_folders
from tile_oracle.training.recipe import Recipe, TreePart
from tile_oracle.training.train import train

SHIPPED = model_folders(data_folder("models"))


@pytest.mark.parametrize("folder", sampled(SHIPPED, every=4), ids=lambda folder: folder.name)
def test_a_shipped_models_card_has_its_devices_compilers_sets_and_worst_problem(folder: Path) -> None:
    card = model_card(folder).replace("\\", "")
    made_by = json.loads((folder / "train_manifest.json").read_text()).get("made_by", {})
    for names in made_by.values():
        for name, count in names.items():
            assert f"{name} | {count:,} |" in card
    learned_from = card.partition("## Learned from")[2].partition("##")[0]
    assert any(f"| {word} " in learned_from for word in ("device", "file"))
    reads_roofline = "gemm_pool_2" in (folder / "feature_spec.json").read_text()
    assert (f"constants fitted to {FITTED_TO}" in learned_from) == reads_roofline
    for path in baseline_files(folder):
        baseline = load_baseline(path)
        if baseline.model_kind == "out_of_fold":
            continue
        percent = [100 * one for one in baseline.efficiencies.values() if one is not None]
        judged = f"{len(percent):,} | {sum(percent) / len(percent):.2f} ["
        assert f"| {baseline.problem_set}, {baseline.device} | {judged}" in card
        if min(percent) < 90:
            assert "judged problems are below 90 %" in card


def test_a_models_card_names_the_sizes_that_it_was_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = make_problems(6)
    records = make_records(problems, make_kernels())
    recipe = Recipe("time", "", (TreePart("log_time", "grouped_conv_own_1"),))
    train(records, recipe, n_splits=2).save(tmp_path / "mine")
    assert main(["model", "card", str(tmp_path / "mine")]) == 0
    assert (card := capsys.readouterr().out).startswith("# mine\n")
    assert "6 problems, one row for each pair" in card
    channels = [problem.C for problem in problems]
    assert f"C {min(channels):,} to {max(channels):,}" in card
    assert "2 folds by family" in card


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_model_that_does_not_load_has_no_card(
    damage: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = next(one for one in SHIPPED if (one / "network.json").is_file())
    for file in (*folder.glob("model_*"), folder / "network.json"):
        copy = shutil.copytree(folder, tmp_path / file.name)
        damage(copy / file.name)
        assert main(["model", "evaluate", str(copy)]) == 2
        said = capsys.readouterr()
        assert not said.out
        assert said.err.count("\n") == 1
        assert file.name in said.err


def test_the_card_of_a_model_that_nothing_judges_says_so(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(SHIPPED[0], tmp_path / "mine", ignore=shutil.ignore_patterns("nvidia*")))
    for path in folder.glob("cv_metrics_*"):
        path.write_text("{}")
    manifest = json.loads((folder / "train_manifest.json").read_text())
    (folder / "train_manifest.json").write_text(json.dumps({**manifest, "warm_start_from": "older"}))
    main(["doctor", "--seal", str(folder)])
    card = model_card(folder)
    assert "## How well it picks\n\nNothing in its folder judges it" in card
    assert "| judged on |" not in card
    assert "cross-validation below" not in card


def test_a_folder_without_a_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "card", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
