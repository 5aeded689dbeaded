"""`tile-oracle tune -o FILE --format ...`: tables of other programs, read back by our readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.operations.gemm.blas_call import call_of, gemm_of
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.pickers.table import picker_of_file
from tile_oracle.problem import problem_from_id

FILES = Path(__file__).parents[1] / "foreign" / "formats"
VALIDATORS = "Validator,PT_VERSION,2.9.0\nValidator,GCN_ARCH_NAME,gfx950:sramecc+:xnack-\n"


def imported(tmp_path: Path, name: str) -> Path:
    out = tmp_path / "records.parquet"
    write_records(import_file(FILES / name, "gfx950").records, out)
    return out


def test_results_of_tunable_op_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, file = imported(tmp_path, "chunk_0000.csv"), tmp_path / "tunableop_results0.csv"
    other = "GemmTunableOp_Half_NN,nn_8_8_8_ld_8_8_8,Default,0.5"
    mine = "GemmTunableOp_Half_TN,tn_512_1024_256_ld_256_256_512,Gemm_Hipblaslt_9,0.9"
    file.write_text(f"{VALIDATORS}{other}\n{mine}\n")
    arguments = ["tune", "--from-records", str(records), "-o", str(file), "--format", "tunableop"]
    assert main(arguments) == 0
    assert file.read_text() == (
        f"{VALIDATORS}{other}\nGemmTunableOp_Half_TN,tn_512_1024_256_ld_256_256_512,Gemm_Hipblaslt_11,0.008\n"
    )
    picker = picker_of_file(file, "gfx950")
    problem = GemmProblem("fp16", "rcr", 1024, 512, 256)
    assert [one.kernel for one in picker.pick(problem, ())] == ["gemm_fp16_rcr_hipblaslt.s11"]
    assert "Default names no solution" in picker.identity
    assert import_file(file, "gfx950").records["latency_ms"].tolist() == [0.008]
    file.unlink()
    assert main(arguments) == 2
    assert "PyTorch loads results only with its own Validator lines" in capsys.readouterr().err


def test_a_lookup_table_of_inductor_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, file = imported(tmp_path, "inductor.log"), tmp_path / "lut.json"
    other = {
        "((torch.float32, [8, 8], [8, 1]), (torch.float32, [8, 8], [8, 1]))+mm": [{"template_id": "aten::mm"}]
    }
    file.write_text(json.dumps(other))
    assert main(["tune", "--from-records", str(records), "-o", str(file), "--format", "inductor"]) == 0
    table = json.loads(file.read_text())
    key = "((torch.float16, [128, 4096], [4096, 1]), (torch.float16, [4096, 4096], [1, 4096]))+mm"
    assert table.keys() == {*other, key}
    (choice,) = table[key]
    assert choice == {"template_id": "aten::mm"}
    picker = picker_of_file(file, "gfx950")
    problem = problem_from_id("gemm-fp16-rcr-m128-n4096-k4096")
    best = import_file(FILES / "inductor.log", "gfx950").records.sort_values("latency_ms")["kernel"].iloc[0]
    assert [one.kernel for one in picker.pick(problem, ())] == [best]
    capsys.readouterr()
    assert main(["model", "evaluate", str(file), str(records), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headlines_percent"]["mean"]["value"] == 100


def test_an_entry_of_inductors_triton_is_what_torch_compiles(tmp_path: Path) -> None:
    log, records, file = tmp_path / "some.log", tmp_path / "some.parquet", tmp_path / "lut.json"
    lines = (FILES / "inductor.log").read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if not line.startswith("  mm ")))
    write_records(import_file(log, "sm_90").records, records)
    assert main(["tune", "--from-records", str(records), "-o", str(file), "--format", "inductor"]) == 0
    ((choice,),) = json.loads(file.read_text()).values()
    assert (choice["template_id"], choice["BLOCK_K"], choice["EVEN_K"]) == ("triton::mm", 128, True)
    assert "ALLOW_TF32" not in choice, "torch 2.11 sets it itself: twice, it ends the compilation"


def test_records_without_a_kernel_that_the_program_has_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, file = imported(tmp_path, "inductor.log"), tmp_path / "t.csv"
    assert main(["tune", "--from-records", str(records), "-o", str(file), "--format", "tunableop"]) == 2
    assert "these runs have kernels of hipblaslt or rocblas of none" in capsys.readouterr().err
    assert main(["tune", "--from-records", str(records), "-o", str(file)]) == 2
    assert "--output goes with --format" in capsys.readouterr().err
    assert not file.exists()


@given(st.sampled_from(GEMM_LAYOUTS), *[st.integers(1, 9000)] * 3)
def test_a_call_is_the_problem_that_it_was_made_of(layout: str, m: int, n: int, k: int) -> None:
    problem = GemmProblem("fp16", layout, m, n, k)
    assert gemm_of({**call_of(problem), "a_type": "f16_r", "b_type": "f16_r"}) == problem


@pytest.mark.slow
def test_records_of_other_problems_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (problem,), records, file = make_problems(1), tmp_path / "records.parquet", tmp_path / "tuned.csv"
    make_records([problem], make_kernels()[:2]).drop(columns="time").to_parquet(records)
    assert main(["tune", "--from-records", str(records), "-o", str(file), "--format", "aiter"]) == 2
    assert f"tune: {problem.id} is not a GEMM, and AITER's and" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.slow
def test_a_measured_gemm_is_a_row_of_a_tuned_table_of_aiter(tmp_path: Path) -> None:
    """`tune --format aiter`, from the measurement to what a session picks from the table."""
    file, problem = tmp_path / "bf16_tuned_gemm.csv", "gemm-fp32-rcr-m32-n64-k32"
    arguments = ["tune", problem, "--target", "cpu", "--kernel-set", "tiny", "--toolchain", "ziglang"]
    arguments += ["--budget", "10m", "--report-dir", str(tmp_path)]
    assert main([*arguments, "-o", str(file), "--format", "aiter", "--cu-num", "1"]) == 0
    row = dict(zip(*(line.split(",") for line in file.read_text().splitlines()), strict=True))
    found = [row[name] for name in ("cu_num", "M", "N", "K", "dtype", "libtype")]
    assert found == ["1", "32", "64", "32", "torch.float32", "tile_oracle"]
    picker = picker_of_file(file, "cpu")
    assert [one.kernel for one in picker.pick(problem_from_id(problem), ())] == [row["kernelName"]]
    assert float(row["us"]) > 0
