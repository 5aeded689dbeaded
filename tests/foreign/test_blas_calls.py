"""Logs of rocBLAS and hipBLASLt, with lines as the libraries print them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tile_oracle.errors import ProblemSetError
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_set import load_problem_set

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
