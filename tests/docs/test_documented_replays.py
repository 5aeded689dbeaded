"""The replays of docs/campaign.md, run in an empty folder: model, baseline, device and figures agree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(
    r"^\| (?P<set>\w+) \| (?P<device>[\w ]+) \| (?P<model>\w+) \| (?P<judged>\d+) of (?P<problems>\d+) "
    r"\| (?P<mean>[\d.]+) \| (?P<p10>[\d.]+) \|$",
    re.MULTILINE,
)
ROWS = [match.groupdict() for match in _ROW.finditer((ROOT / "docs" / "campaign.md").read_text())]
OVERVIEW = (ROOT / "README.md").read_text()
FAST = "gemm_fp16_validation"
OTHERS = "attention_validation"


def replayed(folder: Path, problem_set: str, *words: str) -> tuple[dict[str, Any], str, int]:
    """The verdict.json of `pytest --problem-set SET --target replay`, what it prints, and its status."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--problem-set", problem_set]
    done = subprocess.run(
        [*command, "--target", "replay", "--run-name", "r", *words],
        cwd=folder,
        env={**environment, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return json.loads((folder / "reports" / "r" / "verdict.json").read_text()), done.stdout, done.returncode


def test_every_shipped_oracle_is_in_the_table() -> None:
    shipped = {path.parent.name for path in (ROOT / "models").glob("*/*/*/*.parquet")}
    assert {row["set"] for row in ROWS} == shipped
    assert {row["model"] for row in ROWS} >= {
        path.parents[2].name for path in (ROOT / "models").glob("*/nvidia*/*/*.json")
    }


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row["set"], marks=() if row["set"] == FAST else pytest.mark.slow) for row in ROWS],
)
def test_a_documented_replay_answers_as_documented(row: dict[str, str], tmp_path: Path) -> None:
    found, printed, status = replayed(tmp_path, row["set"])
    efficiency, run = found["efficiency"], found["run"]
    assert (found["model"]["kind"], found["model"]["name"]) == ("folder", row["model"])
    assert (run["device"], efficiency["problems"]) == (row["device"], int(row["problems"]))
    assert efficiency["covered"] == int(row["judged"])
    assert f"{efficiency['mean_percent']:.2f}" == row["mean"]
    assert f"{efficiency['p10_percent']:.2f}" == row["p10"]
    assert f"/{row['model']}/" in run["baseline_file"]
    assert found["baseline"]["problem_set"] == row["set"]
    assert (found["state"], status) == ("passed", 0), printed
    assert f"model: {row['model']} (shipped; trained on " in printed
    considered = [one for kind in found["model"]["considered"] for one in kind["models"] if one["taken"]]
    assert {Path(one["folder"]).name for one in considered} == {row["model"]}
    beside = {one["name"]: one for one in found["pickers"][1:]}
    assert set(beside) == ({"roofline"} if row["set"].startswith("gemm") else set())
    for one in beside.values():
        assert one["problems"] == efficiency["problems"]
        assert f"  roofline - {row['model']}: mean -" in printed
    if f"pytest --problem-set {row['set']} --target replay\n" in OVERVIEW:
        assert "135,746 recorded measurements" in OVERVIEW
        assert "299 problems, 135,746 pairs replayed" in printed
        assert "mean efficiency 98.8 %, median 100.0 %, P10 96.8 %" in OVERVIEW
        assert "mean 98.8 %   median 100.0 %   P10 96.8 %" in printed
    if row["set"] == "forward_unseen_300":
        assert "--model grouped_conv_forward_bf16_cpu (amd-epyc-family-26-model-2-41cb698b)" in printed
    if row["set"] == OTHERS:
        assert "no model for 6 problems (attention fp16 " in printed
        assert "was trained for bf16, not fp16); --model out-of-fold judges all" in printed


@pytest.mark.slow
def test_the_recording_of_another_device_is_named_and_replayed_when_asked_for(tmp_path: Path) -> None:
    found, printed, _ = replayed(tmp_path, "forward_unseen_300", "--model", "grouped_conv_forward_bf16_cpu")
    assert found["run"]["device"] == "AMD EPYC, family 26, model 2"
    assert found["model"]["name"] == "grouped_conv_forward_bf16_cpu"
    assert found["state"] == "passed", printed


@pytest.mark.parametrize("operation", ["grouped_conv", "gemm", "attention"])
def test_the_overview_has_the_range_of_the_replays(operation: str) -> None:
    rows = [row for row in ROWS if row["model"].startswith(operation)]
    ranges = []
    for figure in ("mean", "p10"):
        least, most = (f"{limit(float(row[figure]) for row in rows):.1f}" for limit in (min, max))
        ranges.append(least if least == most else f"{least} to {most}")
    (line,) = re.findall(r"^\| NVIDIA H100, H200 .*", OVERVIEW, re.MULTILINE)
    assert f"| {', '.join(ranges)} |" in line
