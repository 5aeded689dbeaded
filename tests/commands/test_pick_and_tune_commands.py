"""`tile-oracle pick` and `tile-oracle tune`, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.samples import slow
from tests.warm_python import run_warm
from tile_oracle.cli import main
from tile_oracle.model.fitting_model import pool_of_model
from tile_oracle.model.store import model_folders, shipped_models
from tile_oracle.problem import problem_from_id
from tile_oracle.problem_set import load_problem_set

GFX = "forward-bf16-n1-c64-k64-i56x56-f3x3-p1"
MINE = "forward-fp32-n1-c16-k16-i9x9-f3x3-p1"
SMALL = ["--target", "cpu", "--kernel-set", "tiny", "--toolchain", "ziglang"]


def test_a_pick_states_its_basis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pick", GFX, "--arch", "gfx950", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(
        rf"{GFX}: 30 candidates by grouped_conv_forward_bf16_gfx950 \(\w+\), [\d.]+ \w+, after loading",
        lines[0],
    )
    assert re.fullmatch(r" +1 +[\d.]+ predicted TFLOPS  grouped_conv_forward_bf16_2d_\S+", lines[1])
    assert len(lines) == 3


SHIPPED = [
    ("grouped_conv_forward_bf16_gfx950", "gfx950", GFX),
    ("grouped_conv_forward_bf16_cpu", "cpu", GFX),
    ("grouped_conv_forward_bf16_sm_90", "sm_90", GFX),
    ("grouped_conv_bwd_data_bf16_sm_90", "sm_90", GFX.replace("forward", "bwd_data")),
    ("grouped_conv_bwd_weight_bf16_sm_90", "sm_90", GFX.replace("forward", "bwd_weight")),
    ("gemm_bf16_sm_90", "sm_90", "gemm-bf16-rcr-m64-n7168-k2560"),
    ("gemm_fp16_sm_90", "sm_90", "gemm-fp16-rcr-m64-n7168-k2560"),
    ("attention_fwd_bf16_sm_90", "sm_90", "attention-bf16-b1-h14-g2-q1-k32768-d64-causal"),
    ("scaled_gemm_fp8_e4m3_sm_90", "sm_90", "scaled_gemm-fp8_e4m3-block-m64-n7168-k2560"),
    ("fused_gemm_bf16_sm_90", "sm_90", "fused_gemm-bf16-rcr-bias_residual-m64-n768-k3072"),
    ("fused_moe_bf16_sm_90", "sm_90", "fused_moe-bf16-down-t1024-e16-k1-h5120-i8192-zipf100"),
    ("fused_moe_fp8_e4m3_sm_90", "sm_90", "fused_moe-fp8_e4m3-down-t384-e256-k8-h7168-i512"),
    ("paged_attention_bf16_sm_90", "sm_90", "paged_attention-bf16-bf16-b1-h16-g2-q1-k8192-d64-p64-sinks"),
]


def test_every_shipped_model_is_in_the_table() -> None:
    every = {folder.name for folder in model_folders(shipped_models())}
    of_one_device = {name for name in every if name.endswith(("_h100", "_h200"))}  # found where it is known
    assert {model for model, _, _ in SHIPPED} == every - of_one_device


@pytest.mark.parametrize(
    ("model", "arch", "problem"),
    [
        pytest.param(*one, id=one[0], marks=() if one[0].startswith("attention") else pytest.mark.slow)
        for one in SHIPPED
    ],
)
def test_every_shipped_model_picks_among_its_own_kernels(
    model: str,
    arch: str,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    for words in ((), ("--model", model)):
        assert main(["pick", problem, "--arch", arch, "--json", *words]) == 0
        found.append(json.loads(capsys.readouterr().out))
    pool = pool_of_model(shipped_models() / model, problem_from_id(problem).kind)
    for one in found:
        assert (one["model"], one["candidates"]) == (model, len(pool))
        assert one["picks"][0]["kernel"] in {kernel.name for kernel in pool}
    assert found[0]["picks"] == found[1]["picks"], "the model by its name is the one that is found"
    assert main(["predict", problem, "--arch", arch, "--json", "--top", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == model


# Native kernels, and Triton's, whose files take seconds to describe.
@pytest.mark.parametrize(("model", "arch", "problem"), [SHIPPED[0], *slow(SHIPPED[7])])
def test_a_list_that_sessions_take_is_ranked_too(
    model: str, arch: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = pool_of_model(shipped_models() / model, problem_from_id(problem).kind)
    few = sorted(kernel.name for kernel in pool)[:3]
    (tmp_path / "few.json").write_text(json.dumps({"arch": [arch], "kernels": few}))
    for command, option in (("predict", "--kernels"), ("pick", "--kernel-set")):
        words = [command, problem, "--arch", arch, "--json", "--top", "9"]
        assert main([*words, option, str(tmp_path / "few.json")]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["model"] == model
        assert sorted(one["kernel"] for one in found["picks"]) == few


def test_dimensions_and_sets_name_problems_too(capsys: pytest.CaptureFixture[str]) -> None:
    dimensions = "N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1"
    assert main(["pick", dimensions, GFX, "forward_smoke", "--arch", "gfx950", "--json"]) == 1
    shown = capsys.readouterr()
    found = [json.loads(line) for line in shown.out.splitlines()]
    smoke = [problem.id for problem in load_problem_set("forward_smoke").problems]
    assert [one["problem"] for one in found] == list(dict.fromkeys([GFX, *smoke]))
    # The set has a 3D problem, for which no model ships: this is reported, and the others continue.
    without = [one for one in found if not one["picks"]]
    assert len(without) == shown.err.count("tile-oracle pick: ") == 1
    assert "no model fits forward bf16 3D on gfx950" in without[0]["notes"][0]
    assert without[0]["notes"][0] in shown.err
    for one in (one for one in found if one["picks"]):
        assert one["model"] == "grouped_conv_forward_bf16_gfx950"
        assert one["candidates"] == 30
        assert one["pick_us"] > 0
        assert one["notes"] == []
        (pick,) = one["picks"]
        assert pick["predicted_tflops"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["N=1,C"], "'C' is not a dimension; write C=64, joined by commas"),
        (["N=1,C=64,K=64,Hi=9,Wi=9,Y=3,Q=3"], "'Q', is unknown"),
        (["N=1,C=64"], "no column K, Hi, Wi, Y, X"),
        (["N=1,C=x,K=1,Hi=9,Wi=9,Y=3,X=3"], "C = 'x' is not an integer"),
        (["N=1,C=1,K=1,Hi=1,Wi=9,Y=3,X=3"], "enlarge the input or the padding"),
        (['N="1'], "is not a dimension"),
        (["no_such_set"], "is not a problem id"),
        (["./missing.csv"], "missing.csv does not exist"),
        ([GFX, "--top", "0"], "--top must be at least 1"),
        ([GFX, "--arch", "nonsense"], "nonsense"),
        ([GFX, "--model", "missing", "--arch", "gfx950"], "no model folder at missing"),
    ],
)
def test_a_mistake_gives_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    arch = [] if "--arch" in words else ["--arch", "gfx950"]
    assert main(["pick", *words, *arch]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_warm("tile_oracle.cli", words, cwd=cwd, env=os.environ, timeout_s=240)


@pytest.mark.slow
def test_tuning_says_the_best_kernel_and_goes_on_from_its_records(tmp_path: Path) -> None:
    refused = run("pick", MINE, *SMALL, "--build-dir", "cache", cwd=tmp_path)
    assert refused.returncode == 1
    assert "no model was trained for forward fp32 2D on cpu" in refused.stderr
    assert f"train one, or measure `tile-oracle tune {MINE} --target cpu`" in refused.stderr
    asked = ("tune", MINE, "--budget", "10m", *SMALL, "--build-dir", "cache")
    tuned = run(*asked, cwd=tmp_path)
    assert tuned.returncode == 0, tuned.stderr
    said = re.search(
        rf"^{MINE}: [\d.]+ TFLOPS  (grouped_conv_forward_fp32_2d_\S+)$", tuned.stdout, re.MULTILINE
    )
    assert said is not None, tuned.stdout
    assert re.search(r"^    best of 8 kernels$", tuned.stdout, re.MULTILINE)
    found = json.loads(run(*asked, "--json", cwd=tmp_path).stdout)
    assert (found["kernel"], found["measured"]) == (said[1], 8), "the same command goes on from its records"


def test_tuning_takes_problems_or_a_set_and_records_are_for_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.csv").write_text("my own list")
    for words, message in (
        ([], "give problems, --from-records RUN or --problem-set SET, and"),
        ([MINE, "--run-name", "../mine"], "--run-name '../mine' is not a plain name"),
        (
            [MINE, "--run-name", "mine", f"--report-dir={tmp_path}"],
            "mine.csv exists and lists something else",
        ),
        ([MINE, "--from-records", "x", "-o", "y", "--format", "aiter"], "only one of them"),
        (["--from-records", "x"], "--from-records goes with --output"),
        ([MINE, "-o", "y", "--format", "inductor", "--cu-num", "7"], "--cu-num goes with --format aiter"),
        (["--from-records", str(tmp_path), "-o", "x.csv", "--format", "aiter"], "no records in"),
    ):
        assert main(["tune", *words, "--target", "cpu"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_pick_takes_the_pool_of_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pick", "gemm-bf16-rcr-m64-n7168-k2560", "--arch", "sm_90", "--kernels", "triton"]) == 0
    assert "gemm_bf16_rcr_triton." in capsys.readouterr().out
