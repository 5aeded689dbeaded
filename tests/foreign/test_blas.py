"""What hipblaslt-bench and rocblas-bench print, as records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import ProblemSetError, RecordError
from tile_oracle.foreign.blas import blas_entries, has_results
from tile_oracle.foreign.importers import import_file
from tile_oracle.foreign.summary import Imported
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_set import load_problem_set

HEADER = (
    "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,"
    "stride_d,a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,"
    "bias_vector,bias_type,rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us"
)
VALUES = {
    "transA": "T", "transB": "N", "grouped_gemm": "0", "batch_count": "1", "m": "512", "n": "64", "k": "256",
    "alpha": "1", "lda": "256", "stride_a": "131072", "beta": "0", "ldb": "256", "stride_b": "16384",
    "ldc": "512", "stride_c": "32768", "ldd": "512", "stride_d": "32768",
    **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "bf16_r"), "compute_type": "f32_r",
    **dict.fromkeys(("scaleA", "scaleB", "scaleC", "scaleD", "amaxD"), "0"), "activation_type": "none",
    "bias_vector": "0", "bias_type": "bf16_r", "rotating_buffer": "0",
    "hipblaslt-Gflops": "3355.44", "hipblaslt-GB/s": "72.1", "us": "5",
}  # fmt: skip


def block(number: int, solution: int | None, **changed: str) -> str:
    values = VALUES | {"hipblaslt-Gflops": str(3355.44 * 5 / (float(changed.get("us", 5)) or 1))} | changed
    lines = [f"[{number}]:{HEADER}", "    " + ",".join(values[name] for name in HEADER.split(","))]
    if solution is not None:
        lines += [
            f"    --Solution index: {solution}",
            f"    --Solution name:  Cijk_Alik_Bljk_BBS_BH_MT256x{solution}",
            f"    --kernel name:    Cijk_Alik_Bljk_BBS_BH_MT256x{solution}",
        ]
    return "\n".join(lines) + "\n"


def imported(folder: Path, text: str, name: str = "bench.log") -> Imported:
    (folder / name).write_text(text)
    return import_file(folder / name, "gfx950")


@pytest.mark.parametrize("name", ["bench.log", "bench.csv", "bench.txt", "bench"])
def test_the_solutions_of_hipblaslt_bench_are_kernels(tmp_path: Path, name: str) -> None:
    text = (
        "hipBLASLt version: 1300\nIs supported 2 / Total solutions: 2\n"
        + block(0, 300662)
        + block(1, 7, us="2.5")
        + "Winner: \n"
        + block(1, 7, us="2.5")
    )
    found = imported(tmp_path, text, name)
    records = found.records
    assert list(records["kernel"]) == ["gemm_bf16_rcr_hipblaslt.s300662", "gemm_bf16_rcr_hipblaslt.s7"]
    assert set(records["problem"]) == {"gemm-bf16-rcr-m64-n512-k256"}
    assert list(records["latency_ms"]) == [0.005, 0.0025]
    assert records["tflops"][0] == pytest.approx(2 * 512 * 64 * 256 / 5e6)
    assert list(records["status"]) == ["ok", "ok"]
    assert list(records["detail"]) == ["Cijk_Alik_Bljk_BBS_BH_MT256x300662", "Cijk_Alik_Bljk_BBS_BH_MT256x7"]
    assert set(records["cache"]) == {"warm"}
    assert str(found.summary) == f"{name}: 2 rows, 2 ok"


def test_data_that_rotates_is_in_no_cache(tmp_path: Path) -> None:
    assert set(imported(tmp_path, block(0, 1, rotating_buffer="512")).records["cache"]) == {"cold"}


def test_split_k_is_part_of_the_kernel(tmp_path: Path) -> None:
    text = (
        block(0, 3).replace(",hipblaslt-Gflops", ",splitK,wgm,hipblaslt-Gflops").replace(",3355", ",4,8,3355")
    )
    assert list(imported(tmp_path, text).records["kernel"]) == ["gemm_bf16_rcr_hipblaslt.s3.splitK=4.wgm=8"]


def test_a_result_that_failed_its_check_is_wrong(tmp_path: Path) -> None:
    text = (
        block(0, 1)
        .replace(",us\n", ",us,CPU-us,norm_error,atol,rtol\n")
        .replace(",5\n", ",5,9,0.5,failed,failed\n")
    )
    records = imported(tmp_path, text).records
    assert list(records["status"]) == ["wrong"]
    assert records["latency_ms"].isna().all()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"batch_count": "3"}, "kernel of another operation: fused_gemm, which --op fused_gemm takes"),
        ({"grouped_gemm": "1"}, "grouped GEMMs are not supported"),
        ({"beta": "1"}, "beta != 0: more than the operation"),
        ({"lda": "300"}, "padded leading dimensions: more than the operation"),
        ({"a_type": "f8_r"}, "A and B have the types 'f8_r' and 'bf16_r'"),
        ({"a_type": "i8_r", "b_type": "i8_r"}, "GEMMs do not support the data type 'i8_r'"),
        ({"d_type": "f32_r"}, "d_type is not the type of A and B"),
        ({"compute_type": "xf32_r"}, "compute_type is not exact in fp32"),
        ({"activation_type": "gelu"}, "activation_type says that more than the operation is done"),
        ({"bias_vector": "1"}, "bias_vector says that more than the operation is done"),
        ({"m": "many", "ldc": "many", "ldd": "many"}, "m = 'many' is not an integer"),
        ({"alpha": "2"}, "alpha says that more than the operation is done"),
        ({"us": "0"}, "latency is not a positive number"),
        ({"hipblaslt-Gflops": "999999"}, "tflops contradicts latency and problem"),
        ({"hipblaslt-GB/s": "7"}, "bandwidth contradicts latency and problem"),
    ],
)  # fmt: skip
def test_what_is_no_dense_product_is_refused_and_counted(
    tmp_path: Path, changed: dict[str, str], reason: str
) -> None:
    found = imported(tmp_path, block(0, 1) + block(1, 2, **changed))
    assert list(found.records["kernel"]) == ["gemm_bf16_rcr_hipblaslt.s1"]
    assert list(found.summary.refused.values()) == [1]
    assert reason in str(found.summary)


def test_results_without_a_solution_say_how_it_is_printed(tmp_path: Path) -> None:
    with pytest.raises(
        RecordError, match=r"no usable row; no solution index: hipblaslt-bench --print_kernel_info"
    ):
        imported(tmp_path, block(0, None))


def test_rocblas_bench_with_its_command_lines(tmp_path: Path) -> None:
    """Its results have neither types nor solution: the commands before them do."""
    command = (
        "./rocblas-bench -f gemm_ex --transposeA N --transposeB N -m 128 -n 64 -k 32 --alpha 1 --lda 128 "
        "--beta 0 --ldb 32 --ldc 128 --ldd 128 --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r "
        "--compute_type f32_r --algo 1 --solution_index {}\n"
    )
    result = (
        "transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,ldd,batch_count,cold_iters,hot_iters,rocblas-Gflops,us\n"
        "N,N,128,64,32,1,128,0,32,128,128,1,2, 10, 99.864, 5.25\n"
    )
    text = (
        command.format(21)
        + result
        + command.format(35)
        + result.replace("99.864, 5.25", "87.381, 6")
        + command.format(0)
        + result
    )
    found = imported(tmp_path, text)
    assert list(found.records["kernel"]) == ["gemm_fp16_rrr_rocblas.s21", "gemm_fp16_rrr_rocblas.s35"]
    assert list(found.records["latency_ms"]) == [0.00525, 0.006]
    assert list(found.records["samples"]) == [10, 10]
    assert "1 refused: no solution index" in str(found.summary)
    (untyped,) = blas_entries(result.splitlines())
    assert untyped.why == "no data type: print it by --log_datatype"


def test_a_long_hostile_line_is_read_at_once() -> None:
    """No pattern may try each of its places as a beginning."""
    line = "transA," * 100_000 + "transB,x-Gflops\n"
    assert not has_results(line)
    assert not list(blas_entries((line + block(0, 1).replace("hipblaslt", "x")).splitlines()))


@given(st.text('transA,transB[]0:hipblaslt-Gflops\n us--Solution index: 5Winner"', max_size=300))
def test_any_text_is_read(text: str) -> None:
    has_results(text)
    list(blas_entries((block(0, 1) + text + block(1, 2)).splitlines()))


def test_further_columns_mean_what_they_mean_in_any_table(tmp_path: Path) -> None:
    text = block(0, 1) + block(1, 2)
    text = text.replace(",us\n", ",us,verified,weather\n").replace(",5\n", ",5,True,fine\n", 1)
    found = imported(tmp_path, text.replace(",5\n", ",5,False,fine\n"))
    assert list(found.records["status"]) == ["ok", "wrong"]
    assert found.summary.unknown == {"weather"}


# Logs of rocBLAS and hipBLASLt, with lines as the libraries print them.

YAML = """\
- { rocblas_function: "rocblas_gemm_ex", atomics_mode: atomics_allowed, a_type: "bf16_r", b_type: "bf16_r", c_type: "bf16_r", d_type: "bf16_r", compute_type: "f32_r", transA: 'T', transB: 'N', M: 12288, N: 4547, K: 4608, alpha: 1.0, lda: 4608, beta: 0.0, ldb: 4608, ldc: 12288, ldd: 12288, batch_count: 1, algo: 0, solution_index: 0, flags: none, call_count: 136 }
- { rocblas_function: "rocblas_sgemm", atomics_mode: atomics_allowed, transA: 'N', transB: 'T', M: 5, N: 6, K: 7, alpha: 2.0, lda: 5, beta: 1.0, ldb: 6, ldc: 5, call_count: 3 }
"""  # noqa: E501
COMMANDS = """\
loading library
hipblaslt-bench --api_method c -m 1024 -n 512 -k 256 --lda 1024 --alpha 1.000000 --transA N --transB N --batch_count 1  --a_type f16_r --b_type f16_r --compute_type f32_r --algo_method index --solution_index 56073
./rocblas-bench -f gemm -r h --transposeA N --transposeB T -m 12544 -n 147 -k 64 --alpha 15360 --lda 12544 >> gemm.txt
"""  # noqa: E501


@pytest.mark.parametrize("end", ["yaml", "log", "txt"])
def test_lines_of_both_libraries_are_problems(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"calls.{end}"
    path.write_text(YAML + COMMANDS)
    found = load_problem_set(str(path))
    assert found.problems == (
        GemmProblem("bf16", "rcr", 4547, 12288, 4608),
        GemmProblem("fp32", "crr", 6, 5, 7),
        GemmProblem("fp16", "rrr", 512, 1024, 256),
        GemmProblem("fp16", "crr", 147, 12544, 64),
    )
    assert found.sources[3] == "line 5"


@pytest.mark.parametrize("trans_a", "NT")
@pytest.mark.parametrize("trans_b", "NT")
def test_the_row_major_problem_computes_the_same_bytes(tmp_path: Path, trans_a: str, trans_b: str) -> None:
    """BLAS's product of column-major memory, against ours of the same memory."""
    m, n, k = 3, 4, 5
    path = tmp_path / "calls.txt"
    path.write_text(
        f"rocblas-bench -f gemm -r s --transposeA {trans_a} --transposeB {trans_b} -m 3 -n 4 -k 5\n"
    )
    (problem,) = load_problem_set(str(path)).problems
    random = np.random.default_rng(0)
    a, b = random.integers(-4, 5, m * k), random.integers(-4, 5, k * n)

    def blas(memory: np.ndarray, rows: int, columns: int, trans: str) -> np.ndarray:
        if trans == "N":
            return memory.reshape((rows, columns), order="F")
        return memory.reshape((columns, rows), order="F").T

    expected = (blas(a, m, k, trans_a) @ blas(b, k, n, trans_b)).ravel(order="F")
    assert isinstance(problem, GemmProblem)
    shape_a, shape_b, _ = problem.operand_shapes
    ours_a = b.reshape(shape_a) if problem.layout[0] == "r" else b.reshape(shape_a).T
    ours_b = a.reshape(shape_b) if problem.layout[1] == "r" else a.reshape(shape_b).T
    assert ((ours_a @ ours_b).ravel() == expected).all()


def test_what_is_no_single_gemm_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "calls.yaml"
    more = [
        '- { rocblas_function: "rocblas_sgemv", M: 5, N: 6 }',
        '- { rocblas_function: "rocblas_gemm_ex", a_type: "i8_r", b_type: "i8_r", M: 5, N: 6, K: 7 }',
        '- { rocblas_function: "rocblas_sgemm_strided_batched", M: 5, N: 6, K: 7, batch_count: 5 }',
    ]
    path.write_text(YAML + "\n".join(more) + "\n")
    found = load_problem_set(str(path))
    assert len(found.problems) == 2
    assert len(found.notes) == 4
    assert "1 taken as the plain operation: beta != 0" in found.notes
    assert "1 left out: a batch: dtype 'fp32' is not one of bf16, fp16" in found.notes


def test_a_size_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.yaml"
    path.write_text(YAML.replace("K: 7", "K: many"))
    with pytest.raises(ProblemSetError, match=r"calls\.yaml:2: k = 'many' is not an integer"):
        load_problem_set(str(path))
