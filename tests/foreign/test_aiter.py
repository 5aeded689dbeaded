"""Tuned tables of AITER: lines as ROCm/aiter has them in aiter/configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.errors import ProblemError, ProblemSetError, RecordError
from tile_oracle.foreign.aiter import Winner, tuned_table
from tile_oracle.foreign.importers import import_file
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.scaled_gemm.problem import ScaledGemmProblem
from tile_oracle.problem_set import load_problem_set

BLOCK_SCALED = """\
gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio
gfx950,256,1,2048,3072,ck,8,2,4.8294,a8w8_blockscale_1x128x128_256x16x64x256_16x16_16x16_1x1_16x16x1_16x16x1_1x16x1x16_4_1x1_intrawave_v1,2.61,1304.22,0.0
"""
PLAIN = """\
gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw
gfx950,256,64,256,5120,False,torch.bfloat16,torch.float32,False,False,asm,5,13,7.9191,_ZN5aiter39bf16gemm_fp32bf16_tn_64x64_splitk_cleanE,0.0,21.19,417.92
"""
ROWWISE = """\
gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName,tflops,bw,errRatio
gfx942,80,1,1280,8192,torch.int8,34,0,20.5611,a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3,1.02,510.5,0.0
gfx942,80,1,1280,8192,torch.float8_e4m3fnuz,34,0,20.5611,a8w8_rowwise_256x16x64x512_16x16_1x1_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v3,1.02,510.5,0.0
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BLOCK_SCALED, GemmProblem("fp8", "rcr", 1, 2048, 3072)),
        (PLAIN, GemmProblem("bf16", "rcr", 64, 256, 5120)),
        (ROWWISE, GemmProblem("fp8", "rcr", 1, 1280, 8192)),
    ],
)
def test_each_layout_is_a_set_of_gemms(tmp_path: Path, text: str, problem: GemmProblem) -> None:
    path = tmp_path / "a8w8_tuned_gemm.csv"
    path.write_text(text + text)  # shards repeat the header row and shapes
    found = load_problem_set(str(path))
    assert found.problems == (problem,)
    assert found.repeated_rows == 1
    assert ("'int8'" in " ".join(found.notes)) == (text is ROWWISE)


def test_tables_state_their_type_or_are_refused(tmp_path: Path) -> None:
    """By column, by the kernel's name, by the file's name; nothing is taken for fp8 or bf16 unsaid."""
    cases = [
        ("f8gemm_tuned_gemm", "cu_num,M,N,K,us,kernelName\n256,1,64,64,5,f8gemm_bf16_mxfp8fp4", "fp4"),
        ("a4w4_untuned_gemm", "M,N,K,q_dtype_w\n1,64,64,torch.int8", "'mxfp4, int8'"),
        ("a4w4_batched_untuned_gemm", "B,M,N,K\n16,1,64,64", "layout rcr, and no batches"),
        ("bf16_tuned_batched_gemm", "cu_num,B,M,N,K,us,kernelName\n80,x,1,64,64,5,x", "a batch: batch_count"),
        ("a8w8_tuned_gemm", "cu_num,M,N,K,us,kernelName\n80,1,64,64,5,a8w8_256x128", "neither a column"),
        ("a8w8_untuned_gemm", "M,N,K,q_dtype_w\n1,64,64,torch.int8", "'int8'"),
        ("untuned_gemm", "M,N,K,q_dtype_w,q_dtype_a\n1,64,64,torch.float8_e4m3fn,torch.int8", "q_dtype_a"),
        ("bf16_tuned_gemm", PLAIN.replace("gfx950", "gfx1350"), "of 'gfx1350'"),
    ]  # fmt: skip
    for stem, text, said in cases:
        (tmp_path / f"{stem}.csv").write_text(text + "\n")
        with pytest.raises(ProblemSetError, match=f"no problem in it; 1 left out: .*{said}"):
            load_problem_set(str(tmp_path / f"{stem}.csv"))
    taken = [
        ("a8w8_untuned_gemm", "M,N,K,q_dtype_w\n1,64,64,torch.float8_e4m3fnuz", "fp8"),
        ("a8w8_blockscale_untuned_gemm", "M,N,K\n1,64,64", "fp8"),
        ("bf16_tuned_batched_gemm", "cu_num,B,M,N,K,us,kernelName\n80,1,1,64,64,5,x", "bf16"),
    ]
    for stem, text, dtype in taken:
        (tmp_path / f"{stem}.csv").write_text(text + "\n")
        found = load_problem_set(str(tmp_path / f"{stem}.csv")).problems
        assert found == (GemmProblem(dtype, "rcr", 1, 64, 64),)


A4W4 = "a4w4_blockscale_256x64x128x128_16x16_16x16_8x32x1_8x32x1_1x32x1x8_8_2x2_intrawave_v3"
F4GEMM = "_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_64x128E"
MX_TABLE = f"""\
gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio
gfx950,256,16,512,1024,29,0,5.0,{F4GEMM},3.36,56.6,0.0
gfx950,256,16,512,1024,0,0,6.0,{A4W4},2.8,47.1,0.0
gfx950,256,32,512,1024,-1,0,nan,None,0,0,1.0
"""


@pytest.mark.parametrize(
    ("file", "text", "dtype"),
    [
        ("a4w4_blockscale_untuned_gemm", "M,N,K\n1, 64, 96", "fp4_e2m1"),
        ("blockscale_tuned", "cu_num,M,N,K,us,kernelName\n256,1,64,96,5,f4gemm_bf16_per1x32Fp4", "fp4_e2m1"),
        ("a4w4_untuned_gemm", "M,N,K,q_dtype_w\n1,64,96,torch.float4_e2m1fn_x2", "fp4_e2m1"),
        ("a8w8_bpreshuffle_mxfp8_untuned_gemm", "M,N,K,q_dtype_w\n1,64,96,mxfp8", "fp8_e4m3"),
        (
            "dsr1_mxfp8fp4_asm_tuned_gemm",
            "gfx,M,N,K,outdtype,splitK,kernelName,us\n"
            "gfx950,1,64,96,torch.bfloat16,8,f8gemm_bf16_mxfp8fp8_BpreShuffle_256x256,7.5",
            "fp8_e4m3",
        ),
    ],
)
def test_mx_formats_are_scaled_products(tmp_path: Path, file: str, text: str, dtype: str) -> None:
    (tmp_path / f"{file}.csv").write_text(text + "\n")
    found = load_problem_set(str(tmp_path / f"{file}.csv"))
    assert found.problems == (ScaledGemmProblem(dtype, "mx", 1, 64, 96),)


def test_a_tuned_table_of_mx_is_records(tmp_path: Path) -> None:
    path = tmp_path / "a4w4_blockscale_tuned_gemm.csv"
    path.write_text(MX_TABLE)
    found = import_file(path, "gfx950")
    records = found.records
    assert records["problem"].tolist() == ["scaled_gemm-fp4_e2m1-mx-m16-n512-k1024"] * 2
    assert records["kernel"].tolist() == [
        f"scaled_gemm_fp4_e2m1_mx_aiter.{F4GEMM}.kernelid=29.splitk=0",
        f"scaled_gemm_fp4_e2m1_mx_aiter.{A4W4}.kernelid=0.splitk=0",
    ]
    assert records["latency_ms"].tolist() == pytest.approx([0.005, 0.006])
    assert records["status"].tolist() == ["ok", "ok"]
    assert dict(found.summary.refused) == {"the row names no kernel": 1}
    path.write_text(MX_TABLE.replace(",1024,29", ",1000,29"))
    assert "K = 1000 is no multiple of 32" in str(import_file(path, "gfx950").summary)
    path.write_text(MX_TABLE.replace(",5.0,", ",0.0005,"))
    assert "faster than the device can be" in str(import_file(path, "gfx950").summary)


def test_the_rows_of_one_architecture_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "tuned_gemm.csv"
    other = PLAIN.splitlines()[1].replace("gfx950,256,64", "gfx942,304,32").replace("32,False", "32,True")
    path.write_text(PLAIN + other + "\n")
    both = load_problem_set(str(path))
    assert [one.M for one in both.problems] == [64, 32]
    assert "1 of gfx942, 1 of gfx950: FILE.csv:ARCH" in " ".join(both.notes)
    assert "outdtype says that more than the operation is done" in " ".join(both.notes)
    one = load_problem_set(f"{path}:gfx942")
    assert ([each.M for each in one.problems], one.name) == ([32], "tuned_gemm_gfx942")
    path.write_text("M,N,K\n1,2,3\n")
    with pytest.raises(ProblemSetError, match="for tables that state architectures"):
        load_problem_set(f"{path}:gfx942")


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(PLAIN.replace(",5120,", ",many,"))
    with pytest.raises(ProblemSetError, match=r"a\.csv:2: K = 'many' is not an integer"):
        load_problem_set(str(path))


def test_picks_become_a_table_that_is_read_again(tmp_path: Path) -> None:
    problem = GemmProblem("bf16", "rcr", 64, 256, 5120)
    name = "gemm_bf16_rcr_mem_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x16"
    text, _ = tuned_table([Winner(problem, name, 21.19)], "gfx950", 256)
    header, row = text.splitlines()
    assert header == PLAIN.splitlines()[0]
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    assert (cells["libtype"], cells["kernelName"], cells["dtype"]) == ("tile_oracle", name, "torch.bfloat16")
    assert float(cells["us"]) == pytest.approx(problem.flops / 21.19e6, abs=1e-4)
    path = tmp_path / "ours_tuned_gemm.csv"
    path.write_text(text)
    assert load_problem_set(str(path)).problems == (problem,)
    with pytest.raises(ProblemError, match="of layout rcr"):
        tuned_table([Winner(GemmProblem("bf16", "rrr", 8, 8, 8), name, 1.0)], "gfx950", 256)


KERNEL = "gemm_bf16_rcr_mem_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x16"
BATCHED = "gfx,cu_num,B,M,N,K,kernelId,us,kernelName\ngfx950,256,16,1,8,8,1,5,bf16_batched"
DENSE = PLAIN.replace("torch.float32", "torch.bfloat16")
SECOND = DENSE.splitlines()[1].replace("950,256,64", "950,256,128").replace("21.19", "42.38")


def test_a_tuned_table_is_records_of_one_kernel_a_shape(tmp_path: Path) -> None:
    path = tmp_path / "bf16_tuned_gemm.csv"
    rows = [SECOND, SECOND.replace("gfx950", "gfx1250"), SECOND.replace("False,False,asm", "False,True,asm"),
            SECOND.replace(",bf16", ",").replace("0.0,", "0.5,"), SECOND.replace("7.9191", "0"),
            SECOND.replace("bfloat16,torch.bfloat16", "bfloat16,torch.float32"),
            SECOND.replace("_ZN5aiter39bf16gemm", "_ZN5aiter41f4gemm")]  # fmt: skip
    path.write_text(DENSE + "\n".join(rows) + "\n")
    found = import_file(path, "gfx950")
    name = "_ZN5aiter39bf16gemm_fp32bf16_tn_64x64_splitk_cleanE"
    kernel = f"gemm_bf16_rcr_aiter.{name}.libtype=asm.solidx=5.splitk=13"
    assert found.records["kernel"].tolist() == [kernel] * 3
    assert found.records["problem"].tolist()[:2] == [
        "gemm-bf16-rcr-m64-n256-k5120",
        "gemm-bf16-rcr-m128-n256-k5120",
    ]
    assert found.records["latency_ms"].tolist()[:2] == pytest.approx([0.0079191] * 2)
    assert found.records["status"].tolist() == ["ok", "ok", "wrong"]
    assert dict(found.summary.refused) == {
        "GEMMs do not support the data type 'mxfp4, bf16'": 1,
        "gfx states another architecture": 1,
        "latency is not a positive number": 1,
        "bpreshuffle says that more than the operation is done": 1,
        "outdtype says that more than the operation is done": 1,
    }


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("a8w8_blockscale_tuned_gemm", BLOCK_SCALED, "no usable row; scales of blocks: more than"),
        ("a8w8_tuned_gemm", ROWWISE.replace("gfx942", "gfx950"), "no usable row; GEMMs do not support"),
        ("a8w8_tuned_batched_gemm", BATCHED.replace("bf16", "fp8"), "a batch: dtype 'fp8' is not one"),
        ("dsv4_bmm", BATCHED.replace(",16,1,", ",many,1,"), "a batch: batch_count = 'many' is no number"),
        ("untuned_fmoe", "token,model_dim,inter_dim,expert,topk,act_type\n1,2,3,4,5,Silu",
         "this is an AITER table of fused experts: --problem-set takes it"),
        ("gdr", "gfx,cu_num,H,Hg,V\ngfx950,256,1,2,3", "an AITER table of another operation"),
        ("a8w8_untuned_gemm", "M,N,K,q_dtype_w\n1,2,3,fp8", "this is an AITER list of shapes to tune"),
        ("a8w4_tuned_gemm", BLOCK_SCALED.replace("a8w8_block", "a8w4_block"), "the data type 'a8w4'"),
    ],
)  # fmt: skip
def test_what_a_table_of_aiter_is_not_is_said_by_name(
    tmp_path: Path, file: str, text: str, said: str
) -> None:
    (tmp_path / f"{file}.csv").write_text(text + "\n")
    with pytest.raises(RecordError, match=said):
        import_file(tmp_path / f"{file}.csv", "gfx950")


@pytest.mark.parametrize("columns", [",B,M,N,K", ",b,m,n,k"])
def test_a_table_of_batches_is_one_of_fused_gemm(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "bf16_tuned_batched_gemm.csv"
    path.write_text(BATCHED.replace(",B,M,N,K", columns) + "\n")
    found = import_file(path, "gfx950").records
    assert found["problem"].tolist() == ["fused_gemm-bf16-rcr-none-m1-n8-k8-b16"]
    assert found["kernel"].tolist() == ["fused_gemm_bf16_rcr_none_aiter.bf16_batched.kernelid=1"]
    assert found["latency_ms"].tolist() == [0.005]
    assert load_problem_set(str(path)).problems[0].id == found["problem"][0]


def test_names_in_lower_case_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "gfx,b,m,n,k,libtype,kernelId,us,kernelName\ngfx950,1,8,16,32,opus,3,7.8,bf16_x\n"
    )
    found = load_problem_set(str(tmp_path / "x.csv"))
    assert found.problems == (GemmProblem("bf16", "rcr", 8, 16, 32),)


def test_picks_go_into_the_table_that_there_is(tmp_path: Path) -> None:
    """Rows of other devices and libraries keep their bytes; ours of the same key are replaced."""
    path = tmp_path / "bf16_tuned_gemm.csv"
    one, two = (GemmProblem("bf16", "rcr", m, 256, 5120) for m in (64, 32))
    other = DENSE.splitlines()[1].replace("gfx950,256", "gfx942,80")
    first, kept = tuned_table(
        [Winner(one, "gemm_a", 20.0), Winner(two, "gemm_b", 10.0)], "gfx950", 256, DENSE + other
    )
    assert kept == ["gemm-bf16-rcr-m64-n256-k5120: the table has a kernel of asm, which is kept"]
    assert first.startswith(DENSE + other + "\n")
    again, kept = tuned_table([Winner(two, "gemm_c", 11.0), Winner(one, "gemm_d", 5.0)], "gfx950", 80, first)
    assert (again.count("gemm_b"), again.count("gemm_c"), kept) == (1, 1, [])  # another number of units
    third, _ = tuned_table([Winner(two, KERNEL, 12.0)], "gfx950", 256, again)
    assert [line for line in third.splitlines() if KERNEL not in line] == [
        line for line in again.splitlines() if "gemm_b" not in line
    ]
    path.write_text(third)
    assert len(load_problem_set(f"{path}:gfx950").problems) == 2
    found = import_file(path, "gfx950", device="256")
    assert found.records["status"].tolist() == ["ok", "untimed"]
    assert "untimed: libtype says that its time may be predicted" in str(found.summary)
    with pytest.raises(ProblemError, match="other columns"):
        tuned_table([], "gfx950", 256, BLOCK_SCALED)
