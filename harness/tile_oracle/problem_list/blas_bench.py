"""Reads GEMMs from logs of rocBLAS and hipBLASLt: YAML lines, and command lines of their benchmark programs.

    - { rocblas_function: "rocblas_gemm_ex", a_type: "bf16_r", transA: 'T', transB: 'N', M: 4096, ... }
    hipblaslt-bench --api_method c -m 4096 -n 8 -k 1024 --transA T --transB N --a_type bf16_r ...
    ./rocblas-bench -f gemm -r f16_r --transposeA N --transposeB N -m 128 -n 128 -k 64 ...

ROCBLAS_LAYER=4 (YAML) or 2, and HIPBLASLT_LOG_MASK=32, print these lines for the calls of a program. Other
lines are ignored.

BLAS is column-major: C (m x n) = op(A) op(B). The same bytes, read row-major, are C' (n x m) = op(B)' op(A)'.
So a problem has M = n and N = m. Its A is the library's B, row-major unless transposed; its B the library's
A.
Leading dimensions, alpha, beta, the type of C, scales and bias are ignored: the problem is the dense product.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from tile_oracle.errors import ProblemError
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_list.list_file import ListFile, quoted

_FLOW = re.compile(r"\s*-\s*\{(?P<members>.*)\}\s*(?:#.*)?")
_MEMBER = re.compile(r"""([A-Za-z_]\w*)\s*:\s*("[^"]*"|'[^']*'|\[[^\]]*\]|[^,\s]+)""")
_PROGRAM = re.compile(r"(?:^|[\s/])(?:rocblas|hipblaslt|hipblas)-bench(?=\s)(?P<words>.*)")
_FUNCTIONS = ("rocblas_function", "function", "hipblaslt_function")

_NAMES: Mapping[str, str] = {
    "-m": "m", "--sizem": "m", "-n": "n", "--sizen": "n", "-k": "k", "--sizek": "k",
    "M": "m", "N": "n", "K": "k",
    "--transposeA": "transA", "--transA": "transA", "--transposeB": "transB", "--transB": "transB",
    "-r": "precision", "--precision": "precision",
    "--a_type": "a_type", "--b_type": "b_type",
    "--batch_count": "batch_count", "--batch": "batch_count",
    "-f": "function", "--function": "function", "--grouped_gemm": "grouped_gemm",
    **dict.fromkeys(_FUNCTIONS, "function"),
}  # fmt: skip
"""Spellings of options and of YAML members."""

_DTYPES: Mapping[str, str] = {
    "f16_r": "fp16", "h": "fp16", "bf16_r": "bf16", "f32_r": "fp32", "s": "fp32",
    "f8_r": "fp8", "f8_fnuz_r": "fp8",
}  # fmt: skip
_BY_FUNCTION = {"hgemm": "h", "sgemm": "s"}
_SIZES = ("m", "n", "k")


def is_blas_list(head: str) -> bool:
    """Whether the first lines of a file have a GEMM of these logs."""
    return any(_members(line) is not None for line in head.splitlines())


def blas_problems(listed: ListFile) -> Iterator[tuple[GemmProblem, str]]:
    """Yields each GEMM and its line as the source. Lines that are no single GEMM of a supported data type are
    left out and counted in the file's notes. Raises ProblemSetError for sizes that are no integers."""
    left_out: Counter[str] = Counter()
    for text in listed.lines():
        members = _members(text)
        if members is None:
            continue
        why = _why_not(members)
        if why:
            left_out[why] += 1
            continue
        yield _problem(listed, members), f"line {listed.line}"
    for why, count in sorted(left_out.items()):
        listed.notes.append(f"{count:,} calls are left out: {why}")


def _members(line: str) -> dict[str, str] | None:
    """The members of a line that calls a BLAS function; None for other lines."""
    flow = _FLOW.fullmatch(line)
    if flow:
        found = {name: value.strip("\"'") for name, value in _MEMBER.findall(flow["members"])}
        if not any(name in found for name in _FUNCTIONS):
            return None
        return {_NAMES.get(name, name): value for name, value in found.items()}
    program = _PROGRAM.search(line)
    if not program:
        return None
    words = program["words"].split()
    options = ((word, value) for word, value in pairwise(words) if word.startswith("-"))
    return {_NAMES[word]: value for word, value in options if word in _NAMES}


def _why_not(members: Mapping[str, str]) -> str:
    """Why a call is no problem of ours; "" if it is one."""
    function = members.get("function", "matmul")
    if "gemm" not in function and "matmul" not in function:
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


def _problem(listed: ListFile, members: Mapping[str, str]) -> GemmProblem:
    sizes = []
    for name in _SIZES:
        value = members.get(name, "")
        if not (value.isdigit() and value.isascii() and len(value) < 20):
            raise listed.error(f"{name} = {quoted(value)} is not an integer; write digits only")
        sizes.append(int(value))
    m, n, k = sizes
    orders = ("c" if members.get(name, "N").upper() == "T" else "r" for name in ("transB", "transA"))
    try:
        return GemmProblem(_DTYPES[_types(members)[0]], "".join(orders) + "r", n, m, k)
    except ProblemError as error:
        raise listed.error(str(error)[:300]) from None
