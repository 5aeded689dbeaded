"""vLLM's and SGLang's files for products of experts as pickers: small files of the same form, made here."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.compiling.triton.kernel_source import open_triton, shipped_file
from tile_oracle.errors import ModelError
from tile_oracle.kernel import NamedKernel
from tile_oracle.operations.fused_moe.problem import SCALES, FusedMoeProblem
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pickers import expert_files
from tile_oracle.pickers.expert_files import sglang, vllm
from tile_oracle.pickers.installed import Chosen, picker_of
from tile_oracle.problem import Problem

PROBLEM = FusedMoeProblem("bf16", "gate_up", 40, 8, 2, 64, 96)
NAME = "E=8,N=96,device_name=NVIDIA_H100_80GB_HBM3"
WORDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


def row(*values: int) -> dict[str, int]:
    return dict(zip(WORDS, values, strict=True))


def write(folder: Path, name: str = NAME, **tokens: dict[str, int]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = {"triton_version": "3.4.0"} | {one.removeprefix("at"): values for one, values in tokens.items()}
    (folder / f"{name}.json").write_text(json.dumps(rows))
    return folder


def kernel(*values: int, swapped: bool = False, function: str = "experts") -> NamedKernel:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")
    config = {**dict(zip(names, values, strict=True)), "SWAPPED": swapped}
    return NamedKernel(PROBLEM.kind, "triton", function, tuple(sorted(config.items())))


@pytest.fixture(autouse=True)
def _no_files_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_TUNED_CONFIG_FOLDER", "SGLANG_MOE_CONFIG_DIR", "TILE_ORACLE_EXPERTS_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(expert_files.importlib.util, "find_spec", lambda name: None)


def test_the_row_of_the_nearest_number_of_tokens_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (16, 64, 128, 1, 4, 4), (128, 128, 64, 16, 8, 3)
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(write(tmp_path, at32=row(*few), at64=row(*many))))
    picker = vllm("sm_90")
    assert "1 files for NVIDIA_H100_80GB_HBM3" in picker.identity
    for tokens, values in ((1, few), (32, few), (48, few), (49, many), (9000, many)):
        (choice,) = picker.pick(replace(PROBLEM, tokens=tokens), ())
        assert not choice.fallback
        named = ("tile_m", "tile_n", "tile_k", "group_m", "warps", "stages")
        assert dict(choice.values) == {"split_k": 1, **dict(zip(named, values, strict=True))}
    assert picker.pick(GemmProblem("bf16", "rcr", 4, 8, 8), ()) == ()


def test_exact_mapped_and_missing_choices_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = (16, 64, 128, 1, 4, 4)
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(write(tmp_path, at40=row(*own))))
    exact, swapped = kernel(*own), kernel(*own, swapped=True)
    near = kernel(32, 64, 128, 1, 4, 4)
    persistent = kernel(*own, function="experts_persistent")
    elsewhere = replace(PROBLEM, experts=9)

    def ranked(*pool: NamedKernel, problem: Problem = PROBLEM) -> tuple[str, object]:
        table, origin = Chosen("vllm", vllm("sm_90"), "sm_90").rank([problem], lambda one: pool)
        return ("" if table is None else table["kernel"][0]), origin

    name, origin = ranked(swapped, persistent, near, exact)
    assert (name, origin.mapped, origin.fallback) == (exact.name, {}, ())
    name, origin = ranked(swapped, persistent, near)
    assert (name, [*origin.mapped], origin.fallback) == (near.name, [PROBLEM.id], ())
    name, origin = ranked(exact, near, problem=elsewhere)
    assert origin.fallback == (elsewhere.id,), "its default"
    name, origin = ranked(NamedKernel(PROBLEM.kind, "triton", "mine", ()))
    assert (name, [*origin.lacking]) == ("", [PROBLEM.id])


@pytest.mark.parametrize(
    ("tokens", "of_vllm", "of_sglang"),
    [
        (1, (16, 64, 128, 1, 4, 4), (16, 32, 64, 1, 4, 3)),
        (64, (32, 64, 128, 1, 4, 3), (64, 64, 32, 8, 4, 3)),
        (128, (64, 128, 64, 1, 4, 3), (64, 64, 32, 8, 4, 3)),
        (1024, (128, 128, 64, 1, 8, 3), (64, 64, 32, 8, 4, 3)),
        (1032, (128, 128, 64, 16, 8, 3), (64, 64, 32, 8, 4, 3)),
    ],
)
def test_defaults_without_a_file(tokens: int, of_vllm: tuple[int, ...], of_sglang: tuple[int, ...]) -> None:
    for picker, values in ((vllm("sm_90"), of_vllm), (sglang("sm_90"), of_sglang)):
        (choice,) = picker.pick(replace(PROBLEM, tokens=tokens), ())
        assert choice.fallback
        assert tuple(choice.values.values()) == (1, *values)


def test_fp8_has_files_and_a_default_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_bf16, of_fp8 = (16, 64, 128, 1, 4, 4), (32, 64, 128, 1, 4, 3)
    folder = write(tmp_path, at32=row(*of_bf16))
    problem = replace(PROBLEM, dtype="fp8_e4m3")
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(folder))
    (choice,) = vllm("sm_90").pick(problem, ())
    assert (choice.fallback, *choice.values.values()) == (True, 1, 64, 128, 128, 32, 4, 3)
    write(tmp_path, f"{NAME},dtype=fp8_w8a8,block_shape=[128,128]", at32=row(*of_fp8))
    picker = vllm("sm_90")
    assert "2 files for" in picker.identity
    for one, values in ((PROBLEM, of_bf16), (problem, of_fp8)):
        (choice,) = picker.pick(one, ())
        assert (choice.fallback, *choice.values.values()) == (False, 1, *values)
    (choice,) = sglang("gfx950").pick(problem, ())
    assert tuple(choice.values.values()) == (1, 64, 128, 128, 32, 4, 2), "two stages fit on AMD's GPUs"


@pytest.mark.parametrize(
    ("scale", "of_vllm", "of_sglang"),
    [("tensor", "", ""), ("row", "", ",per_channel_quant=True")],
)
def test_scales_of_rows_and_tensors_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str, of_vllm: str, of_sglang: str
) -> None:
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path))
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path))
    problem, own = replace(PROBLEM, dtype="fp8_e4m3", scale=scale), (32, 64, 128, 1, 4, 2)
    write(tmp_path, f"{NAME},dtype=fp8_w8a8,block_shape=[128,128]", at32=row(64, 64, 64, 1, 4, 2))
    of_triton = tmp_path / "configs" / "triton_3_4_0"
    for make, more, folder in ((vllm, of_vllm, tmp_path), (sglang, of_sglang, of_triton)):
        assert make("sm_90").pick(problem, ())[0].fallback
        write(folder, f"{NAME},dtype=fp8_w8a8{more}", at32=row(*own))
        (choice,) = make("sm_90").pick(problem, ())
        assert (choice.fallback, *choice.values.values()) == (False, 1, *own)


@pytest.mark.parametrize(
    ("arch", "tokens", "of_vllm", "of_sglang"),
    [
        ("sm_90", 8, (16, 64, 128, 1, 4, 4), (64, 128, 128, 1, 4, 4)),
        ("sm_90", 40, (32, 64, 128, 1, 4, 3), (128, 256, 128, 32, 8, 4)),
        ("sm_90", 1032, (128, 128, 128, 16, 8, 3), (128, 256, 128, 32, 8, 4)),
        ("gfx950", 8, (16, 64, 128, 1, 4, 2), (64, 128, 128, 1, 4, 2)),
    ],
)
def test_defaults_with_scales_of_rows_or_tensors(
    arch: str, tokens: int, of_vllm: tuple[int, ...], of_sglang: tuple[int, ...]
) -> None:
    for scale, (picker, values) in product(
        ("row", "tensor"), ((vllm(arch), of_vllm), (sglang(arch), of_sglang))
    ):
        (choice,) = picker.pick(replace(PROBLEM, dtype="fp8_e4m3", scale=scale, tokens=tokens), ())
        assert (choice.fallback, *choice.values.values()) == (True, 1, *values)


@pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
@pytest.mark.parametrize(("dtype", "scale"), [("bf16", "block"), *(("fp8_e4m3", scale) for scale in SCALES)])
def test_the_shipped_pool_has_the_defaults(dtype: str, scale: str) -> None:
    problem = replace(PROBLEM, dtype=dtype, scale=scale)
    pool = open_triton("sm_90", str(shipped_file().with_name("fused_moe.py"))).pool(problem.kind)
    problems = [
        replace(problem, tokens=tokens) for tokens in (1, 32, 33, 64, 65, 96, 97, 128, 129, 513, 8192)
    ]
    for picker in (vllm("sm_90"), sglang("sm_90")):
        table, origin = Chosen(picker.name, picker, "sm_90").rank(problems, lambda one: pool)
        assert table is not None
        assert len(table) == len(problems)
        # SGLang's 128 x 256 with whole sums and sums of a step needs more registers than there are.
        large = picker.name == "sglang" and scale != "block"
        assert [*origin.mapped] == [one.id for one in problems if large and one.tokens > one.experts]


@pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
def test_sglang_asks_for_the_installed_triton_then_for_others_and_for_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(expert_files, "triton_version", lambda: "3.3.1")
    rows = {name: row(16, 64, depth, 1, 4, 4) for name, depth in (("old", 32), ("own", 64), ("new", 128))}

    def depth(problem: FusedMoeProblem = PROBLEM) -> object:
        return sglang("sm_90").pick(problem, ())[0].values["tile_k"]

    write(tmp_path / "configs" / "triton_3_2_0", at1=rows["old"])
    assert depth() == 32
    write(tmp_path / "configs" / "triton_3_10_0", at1=rows["new"])
    assert depth() == 128
    write(tmp_path / "configs" / "triton_3_3_1", at1=rows["own"])
    assert depth() == depth(replace(PROBLEM, product="down")) == 64
    write(tmp_path / "configs" / "triton_3_2_0", f"{NAME}_down", at1=rows["old"])
    assert (depth(), depth(replace(PROBLEM, product="down"))) == (64, 32)


def test_devices_and_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path))
    with pytest.raises(ModelError, match="no device of cpu is known: set TILE_ORACLE_EXPERTS_DEVICE"):
        picker_of("vllm", "cpu", [PROBLEM])
    monkeypatch.setenv("TILE_ORACLE_EXPERTS_DEVICE", "NVIDIA_H200")
    write(tmp_path, "E=8,N=96,device_name=NVIDIA_H200", at1=row(64, 64, 64, 1, 4, 2))
    assert vllm("cpu").pick(PROBLEM, ())[0].values["stages"] == 2
    for text in ('{"1": {"BLOCK_SIZE_M": "x"}}', "[1]", "{", "{}", '{"1": 5}'):
        (tmp_path / "E=8,N=96,device_name=NVIDIA_H200.json").write_text(text)
        with pytest.raises(ModelError, match=r"device_name=NVIDIA_H200\.json (cannot be read|does not map)"):
            vllm("cpu").pick(PROBLEM, ())
