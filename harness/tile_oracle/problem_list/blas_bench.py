"""Reads GEMMs from logs of rocBLAS and hipBLASLt: YAML lines, and command lines of their benchmark programs.

    - { rocblas_function: "rocblas_gemm_ex", a_type: "bf16_r", transA: 'T', transB: 'N', M: 4096, ... }
    hipblaslt-bench --api_method c -m 4096 -n 8 -k 1024 --transA T --transB N --a_type bf16_r ...
    ./rocblas-bench -f gemm -r f16_r --transposeA N --transposeB N -m 128 -n 128 -k 64 ...

ROCBLAS_LAYER=4 (YAML) or 2, and HIPBLASLT_LOG_MASK=32, print these lines for the calls of a program. Other
lines are ignored.

BLAS is column-major: C (m x n) = op(A) op(B). The same bytes, read row-major, are C' (n x m) = op(B)' op(A)'.
So a problem has M = n and N = m. Its A is the library's B, row-major unless transposed; its B the library's
A.
Leading dimensions, alpha, beta, the type of C, scales and bias are not part of the problem, which is the
dense product; notes count the calls that have more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from tile_oracle.errors import ProblemError
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_list.list_file import ListFile, quoted

_FLOW = re.compile(r"\s*-\s*\{(?P<members>.*)\}\s*(?:#.*)?")
_MEMBER = re.compile(r"""([A-Za-z_]\w*)\s*:\s*("[^"]*"|'[^']*'|\[[^\]]*\]|[^,\s]+)""")
_PROGRAM = re.compile(r"(?:^|[\s/])(?:rocblas|hipblaslt|hipblas)-bench(?=\s)(?P<words>.*)")
FUNCTIONS = ("rocblas_function", "function", "hipblaslt_function")

READ: Mapping[str, str] = {
    "-m": "m", "--sizem": "m", "-n": "n", "--sizen": "n", "-k": "k", "--sizek": "k",
    "M": "m", "N": "n", "K": "k",
    "--transposeA": "transA", "--transA": "transA", "--transposeB": "transB", "--transB": "transB",
    "-r": "precision", "--precision": "precision",
    "--a_type": "a_type", "--b_type": "b_type",
    "--batch_count": "batch_count", "--batch": "batch_count",
    "-f": "function", "--function": "function", "--grouped_gemm": "grouped_gemm",
    **{f"--{name}": name for name in ("lda", "ldb", "ldc", "ldd", "beta")},
    **{name: name for name in ("transA", "transB", "a_type", "b_type", "batch_count", "grouped_gemm")},
    **{name: name for name in ("precision", "lda", "ldb", "ldc", "ldd", "beta")},
    **dict.fromkeys(FUNCTIONS, "function"),
}  # fmt: skip
"""Spellings of options and of YAML members, and what they are called here."""

_DTYPES: Mapping[str, str] = {
    "f16_r": "fp16", "h": "fp16", "bf16_r": "bf16", "f32_r": "fp32", "s": "fp32",
    "f8_r": "fp8", "f8_fnuz_r": "fp8", "f8_ocp_r": "fp8",
}  # fmt: skip
_BY_FUNCTION = {"hgemm": "h", "sgemm": "s"}
_SIZES = ("m", "n", "k")


def is_blas_list(head: str) -> bool:
    """Whether the first lines of a file have a GEMM of these logs."""
    return any(_members(line) is not None for line in head.splitlines())


def blas_problems(listed: ListFile) -> Iterator[tuple[GemmProblem, str]]:
    """Yields each GEMM and its line as the source, like `problems_of_calls`."""
    return problems_of_calls(listed, _calls(listed))


def _calls(listed: ListFile) -> Iterator[tuple[Mapping[str, str], str]]:
    for text in listed.lines():
        members = _members(text)
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
    left_out: Counter[str] = Counter()
    more: Counter[str] = Counter()
    for members, source in calls:
        why = _why_not(members)
        if not why and any_sizes and any(not _is_size(members.get(name, "")) for name in _SIZES):
            why = "m, n or k is missing or no integer from 1"
        if why:
            left_out[why] += 1
            continue
        yield _problem(listed, members), source
        more.update(not_dense(members))
    for why, count in sorted(left_out.items()):
        listed.notes.append(f"{_calls_text(count)} left out: {why}")
    for what, count in sorted(more.items()):
        listed.notes.append(f"{_calls_text(count)} taken as dense with beta = 0: {what}")


def _calls_text(count: int) -> str:
    return f"{count:,} call is" if count == 1 else f"{count:,} calls are"


def not_dense(members: Mapping[str, str]) -> Iterator[str]:
    """What a call has beyond the dense product of our problem."""
    is_transposed = {name: members.get(name, "N").upper() == "T" for name in ("transA", "transB")}
    rows = {
        "lda": "k" if is_transposed["transA"] else "m",
        "ldb": "n" if is_transposed["transB"] else "k",
        "ldc": "m",
        "ldd": "m",
    }
    if any(name in members and members[name] not in (members.get(rows[name]), "0", "") for name in rows):
        yield "padded leading dimensions"
    if re.fullmatch(r"0*(\.0*)?(e[+-]?\d+)?", members.get("beta", "0")) is None:
        yield "beta != 0"


def _members(line: str) -> dict[str, str] | None:
    """The members of a line that calls a BLAS function; None for other lines."""
    flow = _FLOW.fullmatch(line)
    if flow:
        found = {name: value.strip("\"'") for name, value in _MEMBER.findall(flow["members"])}
        if not any(name in found for name in FUNCTIONS):
            return None
        return {READ.get(name, name): value for name, value in found.items()}
    program = _PROGRAM.search(line)
    if not program:
        return None
    words = program["words"].split()
    options = ((word, value) for word, value in pairwise(words) if word.startswith("-"))
    return {READ[word]: value for word, value in options if word in READ}


def _why_not(members: Mapping[str, str]) -> str:
    """Why a call is no problem of ours; "" if it is one."""
    function = members.get("function", "matmul")
    if ("gemm" not in function and "matmul" not in function) or "bad_arg" in function:
        return f"{quoted(function)} is not a GEMM"
    if members.get("grouped_gemm", "0") not in ("0", "false"):
        return "grouped GEMMs are not supported"
    if members.get("batch_count", "1") != "1":
        return "batches are not supported"
    types = _types(members)
    if len(set(types)) > 1:
        return f"A and B have the types {' and '.join(map(quoted, types))}"
    if types[0] not in _DTYPES:
        return f"GEMMs do not support the data type {quoted(types[0])}"
    for name in ("transA", "transB"):
        if members.get(name, "N").upper() not in ("N", "T"):
            return f"{name} = {quoted(members[name])} is for complex numbers"
    return ""


def _types(members: Mapping[str, str]) -> tuple[str, ...]:
    """The types of A and B as the line says; those of the precision or the function's name otherwise."""
    named = (letter for name, letter in _BY_FUNCTION.items() if name in members.get("function", ""))
    precision = members.get("precision") or next(named, "f32_r")
    return tuple(members.get(name, precision) for name in ("a_type", "b_type"))


def _is_number(text: str) -> bool:
    return text.isdigit() and text.isascii() and len(text) < 20


def _is_size(text: str) -> bool:
    return _is_number(text) and int(text) > 0


def _problem(listed: ListFile, members: Mapping[str, str]) -> GemmProblem:
    sizes = []
    for name in _SIZES:
        value = members.get(name, "")
        if not _is_number(value):
            raise listed.error(f"{name} = {quoted(value)} is not an integer; write digits only")
        sizes.append(int(value))
    m, n, k = sizes
    orders = ("c" if members.get(name, "N").upper() == "T" else "r" for name in ("transB", "transA"))
    try:
        return GemmProblem(_DTYPES[_types(members)[0]], "".join(orders) + "r", n, m, k)
    except ProblemError as error:
        raise listed.error(str(error)[:300]) from None
