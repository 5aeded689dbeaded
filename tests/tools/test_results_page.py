"""docs/results.md is the command's output, and states what was measured and what was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tile_oracle.errors import GateError, ModelError
from tile_oracle.files.vouched_files import seal_baseline, seal_folder
from tools.results.__main__ import main
from tools.results.page import read_shipped, results_page

ROOT = Path(__file__).parents[2]
GFX950 = "grouped_conv_forward_bf16_gfx950"
CPU = "grouped_conv_forward_bf16_cpu"


def test_the_committed_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models", str(ROOT / "models")]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "results.md").read_text()


def test_the_gate_of_a_model_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "models" / "grouped_conv_bwd_weight_bf16_sm_90", folder)
    (baseline,) = folder.glob("*/*/*.json")
    document = json.loads(baseline.read_text()) | {"model_kind": "folder", "problem_set": "some|set"}
    baseline.write_text(json.dumps(document))
    seal_baseline(baseline, GateError)
    page = results_page(read_shipped(tmp_path))
    (line,) = (line for line in page.splitlines() if "| 300 of" in line)
    assert "300 of some\\|set" in line
    assert f"{100 * np.mean(list(document['efficiencies'].values())):.2f} [" in line
    assert results_page([]).count("nothing was measured yet") == 3


def test_auxiliary_data_are_stated(tmp_path: Path) -> None:
    folder = tmp_path / CPU
    shutil.copytree(ROOT / "models" / CPU, folder)
    untaught = results_page(read_shipped(tmp_path))
    assert "other directions" not in untaught
    manifest = json.loads((folder / "train_manifest.json").read_text())
    manifest["taught_by"] = {"bwd_data": 1500, "bwd_weight": 500}
    (folder / "train_manifest.json").write_text(json.dumps(manifest))
    seal_folder(folder, ModelError)
    lines = results_page(read_shipped(tmp_path)).splitlines()
    taught = [line for line in lines if "and 2,000 of other directions" in line]
    assert [line.split("|")[1].strip() for line in taught] == [f"`{CPU}`"]
    assert f"| {manifest['valid_rows']:,} and 2,000 of other directions |" in taught[-1]


def test_a_folder_that_is_not_a_model_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models", str(tmp_path / "none")]) == 2
    assert (
        capsys.readouterr().err == f"python -m tools.results: {tmp_path / 'none'} is not a folder of models\n"
    )
    assert main(["-o", str(tmp_path / "no" / "page.md")]) == 2
    assert "cannot write" in capsys.readouterr().err
