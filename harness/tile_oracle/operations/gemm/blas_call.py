"""GEMM calls of BLAS libraries: from a line of a log or a command, or from members that a file names.

BLAS is column-major: C (m x n) = op(A) op(B). The same bytes, read row-major, are C' (n x m) = op(B)' op(A)'.
So a problem has M = n and N = m. Its A is the library's B, row-major unless transposed; its B the library's
A.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod

from tile_oracle.errors import ProblemError
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GemmProblem
from tile_oracle.problem.dtype_words import dtype_named

_FLOW = re.compile(r"\s*-\s*\{(?P<members>.*)\}\s*(?:#.*)?")
_MEMBER = re.compile(r"""([A-Za-z_]\w*)\s*:\s*("[^"]*"|'[^']*'|\[[^\]]*\]|[^,\s]+)""")
_PROGRAM = re.compile(r"(?:^|[\s/])(?:rocblas|hipblaslt|hipblas)-bench(?=\s)(?P<words>.*)")
FUNCTIONS = ("rocblas_function", "function", "hipblaslt_function")

_STEPS = tuple(f"{what}{operand}" for operand in "abcd" for what in ("ld", "stride_"))
READ: Mapping[str, str] = {
    "-m": "m", "--sizem": "m", "-n": "n", "--sizen": "n", "-k": "k", "--sizek": "k",
    "M": "m", "N": "n", "K": "k",
    "--transposeA": "transA", "--transA": "transA", "--transposeB": "transB", "--transB": "transB",
    "-r": "precision", "--precision": "precision",
    "--a_type": "a_type", "--b_type": "b_type",
    "--batch_count": "batch_count", "--batch": "batch_count",
    "-f": "function", "--function": "function", "--grouped_gemm": "grouped_gemm",
    **{f"--{name}": name for name in (*_STEPS, "beta", "solution_index")},
    **{name: name for name in ("transA", "transB", "a_type", "b_type", "batch_count", "grouped_gemm")},
    **{name: name for name in ("precision", *_STEPS, "beta")},
    **dict.fromkeys(FUNCTIONS, "function"),
}  # fmt: skip
"""Spellings of options and of YAML members, and what they are called here."""

_BY_FUNCTION = {"hgemm": "h", "sgemm": "s"}
SIZES = ("m", "n", "k")


def not_dense(members: Mapping[str, str]) -> Iterator[str]:
    """Yields what a call has beyond the dense product of our problem."""
    is_transposed = {name: members.get(name, "N").upper() == "T" for name in ("transA", "transB")}
    rows = {
        "lda": "k" if is_transposed["transA"] else "m",
        "ldb": "n" if is_transposed["transB"] else "k",
        "ldc": "m",
        "ldd": "m",
    }
    if any(name in members and members[name] not in (members.get(rows[name]), "0", "") for name in rows):
        yield "padded leading dimensions"
    if members.get("batch_count", "1") != "1":
        extents = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n")}
        steps = {name: prod(int(members[size]) for size in both) for name, both in extents.items()}
        if any(members.get(f"stride_{name}") not in (None, "", str(step)) for name, step in steps.items()):
            yield "batches that do not lie one after the other"
        if "batched" in members.get("function", "") and "strided" not in members["function"]:
            yield "batches at any addresses"
    if re.fullmatch(r"0*(\.0*)?(e[+-]?\d+)?", members.get("beta", "0")) is None:
        yield "beta != 0"


def members_of(line: str) -> dict[str, str] | None:
    """Returns the members of a line that calls a BLAS function; None for other lines."""
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


def why_no_gemm(members: Mapping[str, str]) -> str:
    """Returns why a call is no problem of ours; "" if it is one."""
    function = members.get("function", "matmul")
    if ("gemm" not in function and "matmul" not in function) or "bad_arg" in function:
        return f"{_quoted(function)} is not a GEMM"
    if members.get("grouped_gemm", "0") not in ("0", "false"):
        return "grouped GEMMs are not supported"
    types = _types(members)
    if len(set(types)) > 1:
        return f"A and B have the types {' and '.join(map(_quoted, types))}"
    if dtype_named(types[0]) not in GEMM_DTYPES:
        return f"GEMMs do not support the data type {_quoted(types[0])}"
    for name in ("transA", "transB"):
        if members.get(name, "N").upper() not in ("N", "T"):
            return f"{name} = {_quoted(members[name])} is for complex numbers"
    return ""


def _types(members: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the types of A and B as the line says; those of the precision or the function's name
    otherwise."""
    named = (letter for name, letter in _BY_FUNCTION.items() if name in members.get("function", ""))
    precision = members.get("precision") or next(named, "f32_r")
    return tuple(members.get(name, precision) for name in ("a_type", "b_type"))


def _is_number(text: str) -> bool:
    return text.isdigit() and text.isascii() and len(text) < 20


def gemm_of(members: Mapping[str, str]) -> GemmProblem:
    """Returns the GEMM of a call for which `why_no_gemm` says nothing. Raises ProblemError."""
    sizes = []
    for name in SIZES:
        value = members.get(name, "")
        if not _is_number(value):
            raise ProblemError(f"{name} = {_quoted(value)} is not an integer; write digits only")
        sizes.append(int(value))
    m, n, k = sizes
    orders = ("c" if members.get(name, "N").upper() == "T" else "r" for name in ("transB", "transA"))
    return GemmProblem(dtype_named(_types(members)[0]), "".join(orders) + "r", n, m, k)


def call_of(problem: GemmProblem) -> dict[str, str]:
    """Returns the members of the dense call that `gemm_of` reads as a problem: sizes, transpositions, and
    leading dimensions."""
    m, n, k = problem.N, problem.M, problem.K
    is_transposed = {"A": problem.layout[1] == "c", "B": problem.layout[0] == "c"}
    lda, ldb = k if is_transposed["A"] else m, n if is_transposed["B"] else k
    sizes = {"m": m, "n": n, "k": k, "lda": lda, "ldb": ldb, "ldc": m}
    words = {f"trans{name}": "T" if turned else "N" for name, turned in is_transposed.items()}
    return {**{name: str(size) for name, size in sizes.items()}, **words}


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
