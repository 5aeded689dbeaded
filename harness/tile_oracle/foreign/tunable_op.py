"""Reads and writes PyTorch's TunableOp results (`tunableop_results0.csv`): the fastest solution of each GEMM.

    Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-
    GemmTunableOp_BFloat16_TN,tn_4096_16_4096_ld_4096_4096_4096,Gemm_Hipblaslt_1219,0.033

Matrices are column-major, as BLAS has them; times are milliseconds. `Default` is the library's own choice,
so it names no kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from tile_oracle.errors import ModelError, ProblemError
from tile_oracle.foreign.aiter import Winner
from tile_oracle.foreign.blas import of_call
from tile_oracle.foreign.contract import number_of
from tile_oracle.foreign.entry import Entry, kernel_of
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.gemm.blas_call import call_of

_OPERATION = re.compile(r"(?P<op>[A-Za-z]*Gemm[A-Za-z]*TunableOp)_(?P<type>\w+?)_(?P<trans>[NTC]{2})")
_SIZES = re.compile(
    r"[ntc]{2}_(?P<m>\d+)_(?P<n>\d+)_(?P<k>\d+)(?:_B_(?P<batch_count>\d+))?"
    r"(?:_ld_(?P<lda>\d+)_(?P<ldb>\d+)_(?P<ldc>\d+))?(?P<rest>\w*)"
)
_SOLUTION = re.compile(r"Gemm_(?P<library>Hipblaslt|Rocblas)_(?:[NTC]{2}_)?(?P<index>\d+)")
_NAMES = {"bf16": "BFloat16", "fp16": "Half", "fp32": "float"}
_PLAIN = ("GemmTunableOp", "GemmStridedBatchedTunableOp")
_MORE = {"ScaledGemmTunableOp": "scales", "GemmAndBiasTunableOp": "a bias"}


def is_tunable_op(text: str) -> bool:
    """Returns whether a text begins as these results do."""
    first = text.partition("\n")[0]
    return first.startswith("Validator,") or _OPERATION.match(first) is not None


def tunable_entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Yields every result. The architecture is that of the validator lines above it."""
    gfx = ""
    for number, line in enumerate(lines, 1):
        cells = line.strip().split(",")
        if cells[:2] == ["Validator", "GCN_ARCH_NAME"]:
            gfx = cells[-1]
        if cells[0] not in ("", "Validator"):
            yield replace(_entry(cells, f"line {number}"), gfx=gfx, text=line.strip())


def _entry(cells: list[str], source: str) -> Entry:
    named = _OPERATION.fullmatch(cells[0])
    sizes = _SIZES.fullmatch(cells[1]) if len(cells) >= 4 else None
    if named is None or sizes is None or sizes[0][:2] != named["trans"].lower():
        return Entry(why="the line is none of a GEMM's: GemmTunableOp_TYPE_TN,tn_M_N_K...,SOLUTION,MS")
    given = {name: value for name, value in sizes.groupdict().items() if value and name != "rest"}
    dtype = named["type"]
    if dtype not in _NAMES.values():
        return Entry(why=f"{named['op']} of {named['type']} is not read")
    if given.get("batch_count", "1") != "1" or ("Strided" in named["op"] and "batch_count" not in given):
        return Entry(why="batches, whose strides the line does not state")
    a, b = named["trans"][0], named["trans"][1]
    one = of_call({**given, "a_type": dtype, "b_type": dtype, "transA": a, "transB": b}, source)
    if one.problem is None:
        return one
    unread = sizes["rest"] or named["op"] not in _PLAIN
    more = [_MORE[named["op"]]] if named["op"] in _MORE else ["more than it names"] if unread else []
    solution = _SOLUTION.fullmatch(cells[2])
    kernel: dict[str, Any] = {"why_no_kernel": f"{cells[2]} names no solution of a library"}
    if solution:
        kernel |= kernel_of(one.problem, solution["library"].lower(), f"s{solution['index']}", {})
    return replace(one, **kernel, more=(*one.more, *more), times_ms=[number_of(cells[3])])


def results_file(winners: Iterable[Winner], before: str) -> tuple[str, list[str]]:
    """Solutions of hipBLASLt and rocBLAS as results, and why others are none.

    before: the file that there is. Its lines stay, but for those of the same GEMMs. PyTorch loads a file only
    with its own Validator lines: without a file they are those of the installed PyTorch. Raises ModelError
    where there are none, or no result.
    """
    lines = before.splitlines() or _validators()
    rows = {tuple(line.split(",")[:2]): line for line in lines if not line.startswith("Validator,")}
    left_out = []
    for one in winners:
        solution = _solution(one)
        dtype, call = _NAMES.get(one.problem.dtype, ""), call_of(one.problem)
        if not solution or not dtype:
            what = f"{one.kernel} is no solution of hipBLASLt or rocBLAS in bf16, fp16 or fp32"
            left_out.append(f"{one.problem.id} is left out: {what}")
            continue
        turned = call["transA"] + call["transB"]
        sizes = "_".join([turned.lower(), *(call[name] for name in "mnk")])
        ld = "_".join(call[name] for name in ("lda", "ldb", "ldc"))
        key = (f"GemmTunableOp_{dtype}_{turned}", f"{sizes}_ld_{ld}")
        rows[key] = ",".join((*key, solution, f"{one.us / 1e3:.6g}"))
    if not any(_SOLUTION.search(line) for line in rows.values()):
        raise ProblemError(f"no result could be written; {left_out[0] if left_out else 'there is none'}")
    validators = [line for line in lines if line.startswith("Validator,")]
    return "".join(f"{line}\n" for line in (*validators, *rows.values())), left_out


def _solution(one: Winner) -> str:
    kernel = parse_kernel_name(one.kernel)
    numbered = re.fullmatch(r"s(\d+)", kernel.function)
    library = {"hipblaslt": "Hipblaslt", "rocblas": "Rocblas"}.get(kernel.source)
    return f"Gemm_{library}_{numbered[1]}" if library and numbered and not kernel.configuration else ""


def _validators() -> Sequence[str]:
    try:
        tunable = import_module("torch.cuda.tunable")
        found: Sequence[tuple[str, str]] = tunable.get_validators()
    except (ImportError, AttributeError, RuntimeError):
        raise ModelError(
            "PyTorch loads results only with its own Validator lines, and it is not installed here: run the "
            "program once with PYTORCH_TUNABLEOP_ENABLED=1, and name the file that it wrote"
        ) from None
    return [f"Validator,{name},{value}" for name, value in found]
