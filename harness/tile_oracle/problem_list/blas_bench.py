"""Reads GEMMs from logs of rocBLAS and hipBLASLt: YAML lines, and command lines of their benchmark programs.

    - { rocblas_function: "rocblas_gemm_ex", a_type: "bf16_r", transA: 'T', transB: 'N', M: 4096, ... }
    hipblaslt-bench --api_method c -m 4096 -n 8 -k 1024 --transA T --transB N --a_type bf16_r ...
    ./rocblas-bench -f gemm -r f16_r --transposeA N --transposeB N -m 128 -n 128 -k 64 ...

ROCBLAS_LAYER=4 (YAML) or 2, and HIPBLASLT_LOG_MASK=32, print these lines for the calls of a program. Other
lines are ignored.

Leading dimensions, alpha, beta, the type of C, scales and bias are not part of the problem, which is the
dense product; notes count the calls that have more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tile_oracle.errors import ProblemError
from tile_oracle.operations.gemm.blas_call import SIZES, gemm_of, is_size, members_of, not_dense, why_no_gemm
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_list.list_file import ListFile


def is_blas_list(head: str) -> bool:
    """Whether the first lines of a file have a GEMM of these logs."""
    return any(members_of(line) is not None for line in head.splitlines())


def blas_problems(listed: ListFile) -> Iterator[tuple[GemmProblem, str]]:
    """Yields each GEMM and its line as the source, like `problems_of_calls`."""
    return problems_of_calls(listed, _calls(listed))


def _calls(listed: ListFile) -> Iterator[tuple[Mapping[str, str], str]]:
    for text in listed.lines():
        members = members_of(text)
        if members is not None:
            yield members, f"line {listed.line}"


def problems_of_calls(
    listed: ListFile, calls: Iterable[tuple[Mapping[str, str], str]], *, any_sizes: bool = False
) -> Iterator[tuple[GemmProblem, str]]:
    """Yields the GEMM of each call, named by its members, and the call's source. What is no single GEMM of a
    supported data type is left out and counted in the file's notes; calls with more than a dense product are
    counted, too. any_sizes: calls without three sizes from 1 are left out, as in files of tests.

    Raises ProblemSetError for sizes that are no integers.
    """
    for members, source in calls:
        why = why_no_gemm(members)
        if not why and any_sizes and any(not is_size(members.get(name, "")) for name in SIZES):
            why = "m, n or k is missing or no integer from 1"
        if why:
            listed.left_out[why] += 1
            continue
        try:
            problem = gemm_of(members)
        except ProblemError as error:
            raise listed.error(str(error)[:300]) from None
        yield problem, source
        listed.taken.update(not_dense(members))
