"""The CSV of CUTLASS's profiler, also among its other output, and the JSON that its heuristics take.

    Problem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,D,alpha,beta,...,Runtime,GB/s,GFLOPs
    1,CUTLASS,gemm,cutlass_tensorop_h16816gemm_128x128_32x5_nn_align8,passed,success,universal,...,0.0412,...

    [{"m": 4096, "n": 4096, "k": 4096, "batch_count": 1, "layout": "tnn", "dtype_a": "f16", ...}]

Operands are `type:order`; a column-major result is the row-major result of the transposed product. Runtime is
in milliseconds.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tile_oracle.foreign.contract import UNUSED, Field, number_of, status_named
from tile_oracle.foreign.dialect import GEMM_FIELDS
from tile_oracle.foreign.entry import Entry, gemm_entry
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.operations.gemm.problem import RESULT_DTYPES
from tile_oracle.problem.dtype_words import dtype_named

HEADER = "Problem,Provider,OperationKind,Operation,"
_KINDS = ("universal", "gemm")
_OF_KERNEL = ("split_k_slices", "raster_order", "swizzle_size", "cluster_m", "cluster_n", "cluster_k")
_RIGHT = ("passed", "not_verified", "not_run", "")
_JUDGED = ("alpha", "beta")
FIELDS: Mapping[str, Field] = {**{name: GEMM_FIELDS[name] for name in _JUDGED}, "flops/byte": UNUSED}
_ORDERS = {"t": "row", "n": "column"}


def profiler_entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Yields the rows of every table in the lines."""
    header: list[str] | None = None
    for line in lines:
        cells = next(csv.reader([line.strip().removeprefix("\ufeff")]), [])
        if line.strip().removeprefix("\ufeff").startswith(HEADER):
            header = cells
        elif header is not None and len(cells) == len(header) and cells[0].isdigit():
            yield _row(dict(zip(header, cells, strict=True)), line.strip())


def heuristic_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields the problems of a list for the profiler's heuristics. Raises ProblemSetError."""
    for one in json.loads(listed.text()):
        types = (one["dtype_a"], one["dtype_b"], one.get("dtype_d", one["dtype_c"]))
        orders = (_ORDERS[letter] for letter in one["layout"])
        yield _gemm(
            [str(one[name]) for name in "mnk"],
            list(zip(types, orders, strict=True)),
            one.get("dtype_acc", "f32"),
            batch=str(one.get("batch_count", "")),
            stated={name: str(one[name]) for name in _JUDGED if name in one},
            text=json.dumps(one),
        )


def _row(row: Mapping[str, str], text: str) -> Entry:
    kind = row.get("gemm_kind", "")
    if row["OperationKind"] != "gemm" or kind not in _KINDS:
        return Entry(why=f"{row['OperationKind']} {kind}".strip() + " is not a dense GEMM", text=text)
    operands = {name: row.get(name, "").partition(":")[::2] for name in "ABCD"}
    result = operands["D"] if operands["D"][0] else operands["C"]
    runs = status_named(row["Status"]) or "crash"
    figures = {"tflops": number_of(row["GFLOPs"]) / 1e3, "gb_per_s": row["GB/s"]}
    return _gemm(
        [row[name] for name in "mnk"],
        [operands["A"], operands["B"], result],
        row.get("accum", "f32"),
        kernel=(
            row["Provider"].lower(), row["Operation"], {name: row.get(name, "") for name in _OF_KERNEL}
        ),
        batch=row.get("batch_count", ""),
        times_ms=[number_of(row["Runtime"])],
        figures={
            "status": runs if runs != "ok" or row["Disposition"] in _RIGHT else "wrong",
            **(figures if runs == "ok" else {}),
        },
        stated={name: row[name] for name in _JUDGED if name in row},
        source=row["Operation"],
        text=text,
    )  # fmt: skip


def _gemm(sizes: list[str], operands: list[tuple[str, str]], accum: str, **further: Any) -> Entry:
    """Returns the entry of D = A B with operands (type, row or column)."""
    (a_type, a), (b_type, b), (d_type, d) = operands
    m, n, k = sizes
    if not {a, b, d} <= {"row", "column"} or a_type != b_type:
        return Entry(why=f"A, B and D are {a_type}:{a}, {b_type}:{b}, {d_type}:{d}", text=further["text"])
    layout = ("r" if a == "row" else "c") + ("r" if b == "row" else "c")
    if d == "column":
        m, n, layout = n, m, ("r" if b == "column" else "c") + ("r" if a == "column" else "c")
    dtype = dtype_named(a_type)
    more = [] if dtype_named(d_type) == RESULT_DTYPES.get(dtype) else [f"a result of {d_type}"]
    more += [] if dtype_named(accum) == "fp32" else [f"sums in {accum}"]
    return gemm_entry((a_type, layout + "r", m, n, k), more=tuple(more), **further)
