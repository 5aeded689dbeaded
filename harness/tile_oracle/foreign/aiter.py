"""Reads and writes AITER's tables of GEMMs (`aiter/configs/*.csv`): tuned ones, with the fastest kernel per
shape, and lists of shapes to tune.

A is row-major and B is stored as N rows of K: layout rcr. The data type is that of `dtype`, `q_dtype_w` and
`q_dtype_a`; tables without such a column state it in the kernel's or in the file's name. A name of fp4, fp6,
int8 or mixed types overrules them. `splitK` belongs to the kernel. Batches (`B`) are of fused_gemm. Scales,
bias, another result type and a shuffled B are more than the product: lists of problems count such rows as
plain products, and records refuse them. a4w4 and mxfp8 are scaled products with MX scales: nothing more,
since their tables tell no kernels for a shuffled B from others.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tile_oracle.errors import ProblemError
from tile_oracle.files.spreadsheet import safe_cell
from tile_oracle.foreign.contract import MORE, UNUSED, Field, number_of
from tile_oracle.foreign.dialect import GEMM_FIELDS
from tile_oracle.foreign.entry import MX, Entry, entry_of, gemm_entry
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.operations.fused_moe.problem import PRODUCTS
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem.dtype_words import dtype_named

SIZES = frozenset("mnk")
OF_AITER = frozenset(
    {"cu_num", "kernelname", "q_dtype_w", "outdtype", "scaleab", "bpreshuffle", "libtype", "kernelid"}
)
"""Columns that only these tables have, in lower case."""
EXPERTS: Mapping[str, str] = {
    "token": "tokens", "expert": "experts", "topk": "topk", "model_dim": "hidden", "inter_dim": "intermediate"
}  # fmt: skip
"""Columns of AITER's tables of fused experts, and our names."""
_SCALES = {"per_Tensor": "tensor", "per_Token": "row", "per_1x128": "block"}
"""AITER's types of quantization, and our names."""
OF_EXPERTS: Mapping[str, Field] = dict.fromkeys((*EXPERTS, "q_dtype_w", "use_g1u1"), UNUSED)
FILE = re.compile(r"(?:a\d+w\d+|a16w16|bf16|fp8|f4).*tuned.*(?:gemm|bmm)")
_DTYPE_COLUMNS = ("dtype", "q_dtype_w", "q_dtype_a")
_MIXED = re.compile(r"(?<![a-z0-9])a(\d+)w(\d+)")
_DTYPE_IN_NAMES = (
    (re.compile(r"mxfp8fp8|mxf8_mxf8"), "mxfp8"),
    (re.compile(r"a4w4|f4gemm"), "mxfp4"),
    (re.compile(r"fp4"), "fp4"),
    (re.compile(r"a6w6|f6gemm|fp6"), "fp6"),
    (re.compile(r"int8|i8gemm"), "int8"),
    (re.compile(r"mxfp8"), "mxfp8"),
    (re.compile(r"a8w8_?(?:blockscale|blkscale|mxscale)|fp8"), "fp8"),
    (re.compile(r"bf16"), "bf16"),
    (re.compile(r"fp16|f16"), "fp16"),
)
"""Words in names of kernels and files, and their types. Other a8w8 kernels are of fp8 or int8."""
_OVERRULES = frozenset({"mxfp4", "mxfp8", "fp4", "fp6", "int8"})
_SAID_OF_MX = {"mxfp4": {"mxfp4", "fp4", "fp4x2", "float4_e2m1fn_x2"}, "mxfp8": {"mxfp8", "fp8"}}
"""What columns may state of a row with MX scales."""
_MORE = (
    (re.compile(r"block_?scale|blkscale|mxscale|mxfp|per1x"), "scales of blocks"),
    (re.compile(r"rowwise|pertoken|a8w8(?!_?(?:block|blk))"), "scales of rows"),
    (re.compile(r"bpreshuf|preshuffletrue"), "a shuffled B"),
)
"""Words in names of kernels and files that say that more than the product is done, or with another B."""
FIELDS: Mapping[str, Field] = {
    **GEMM_FIELDS,
    "outdtype": Field(holds=GEMM_FIELDS["outdtype"].holds, of="problem", why=MORE),
    "libtype": Field(
        holds=lambda text, _: text != LIBTYPE, why="says that its time may be predicted", status="untimed"
    ),
    **dict.fromkeys(("m", "n", "k", "solidx", "kernelid", "kernelname", "splitk", "us"), UNUSED),
}
_LAYOUT = "rcr"
_OF_KERNEL = ("libtype", "kernelid", "solidx", "splitk")
"""Columns that tell a kernel from others of its name."""
_ROUNDED = 0.0051
"""How far the tables' TFLOPS are from what they are of: they have two digits."""

HEADER = (
    "gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle",
    "libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw",
)  # fmt: skip
"""The columns of written tables: the variant with the column `dtype`."""
LIBTYPE = "tile_oracle"
_KEY = HEADER.index("libtype")
"""Columns before it say what a row is for."""
TORCH = {
    "bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32", "fp8": "torch.float8_e4m3fn",
}  # fmt: skip


def aiter_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every row. Raises ProblemSetError for text that is no table."""
    for row, text in listed.table():
        names = f"{row.get('kernelname', '')} {listed.path.stem}".lower()
        us = row.get("us", "")
        stated = {name: cell for name, cell in row.items() if name not in ("b", "tflops", "us", "kernelname")}
        more = [what for pattern, what in _MORE if pattern.search(names)]
        dtype = _dtype(row, names)
        if dtype in MX:
            more = []
            stated = {name: cell for name, cell in stated.items() if name not in _DTYPE_COLUMNS}
        one = gemm_entry(
            (dtype, _LAYOUT, *(row[name] for name in "mnk")),
            kernel=(
                "aiter",
                row.get("kernelname", "").removeprefix("None"),
                {name: row.get(name, "") for name in _OF_KERNEL},
            ),
            batch=row.get("b", ""),
            times_ms=[number_of(us) / 1e3],
            figures=_tflops(row),
            stated=stated,
            gfx=row.get("gfx", ""),
            source=", ".join([*filter(None, [row.get("kernelname")]), *([f"{us} us"] if us else [])]),
            more=tuple(more),
            text=text,
        )
        # Tables of `tuned_table` name our kernels.
        yield replace(one, kernel=row["kernelname"]) if row.get("libtype") == LIBTYPE else one


def expert_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields both products of every row. Its times are of more than them. Raises ProblemSetError."""
    for row, text in listed.table():
        said = {EXPERTS[name]: cell for name, cell in row.items() if name in EXPERTS}
        dtype = dtype_named(row.get("q_dtype_w", ""))
        scale = _SCALES.get(row.get("q_type", "").rpartition(".")[2]) if dtype == "fp8" else None
        said |= {"dtype": "fp8_e4m3", "scale": scale} if scale else {"dtype": dtype}
        for product in PRODUCTS:
            if product == "gate_up" and row.get("use_g1u1") != "1":
                yield Entry(why="experts have no gate (use_g1u1)", text=text)
            else:
                yield entry_of("fused_moe", {**said, "product": product}, gfx=row.get("gfx", ""), text=text)


def _tflops(row: Mapping[str, str]) -> dict[str, float]:
    """Returns the stated TFLOPS, if they are not those of the stated time, rounded."""
    stated, us = number_of(row.get("tflops")), number_of(row.get("us"))
    flops = 2 * math.prod(number_of(row.get(name) or "1") for name in "bmnk")
    if not row.get("tflops") or (us > 0 and abs(stated - flops / (us * 1e6)) <= _ROUNDED):
        return {}
    return {"tflops": stated}


def _dtype(row: Mapping[str, str], names: str) -> str:
    """Returns our name of a row's data type, or AITER's if we have none; "" if nothing states it."""
    stated = [dtype_named(row[name]) for name in _DTYPE_COLUMNS if row.get(name)]
    mixed = _MIXED.search(names)
    if mixed and mixed[1] != mixed[2]:
        return mixed[0]
    named = next((dtype for pattern, dtype in _DTYPE_IN_NAMES if pattern.search(names)), "")
    found = stated[0] if stated and named not in _OVERRULES else named
    denied = next((said for said in stated if said not in _SAID_OF_MX.get(found, {said})), "")
    return f"{found}, {denied}" if denied else found


@dataclass(frozen=True)
class Winner:
    """A pick as a row of a tuned table. tflops: measured if available, else predicted."""

    problem: GemmProblem
    kernel: str
    tflops: float

    @property
    def us(self) -> float:
        """Time in microseconds at this throughput."""
        return self.problem.flops / (self.tflops * 1e6)


def tuned_table(
    winners: Iterable[Winner], arch: str, compute_units: int, before: str = ""
) -> tuple[str, list[str]]:
    """Picks of dense GEMMs of layout rcr as rows of a tuned table, one per problem, and why others are not.

    before: the table that there is. Its lines stay as they are, but for rows of ours of the same device and
    problem, which are replaced. A row that another library has of them is kept: AITER takes no key twice.
    AITER itself calls only kernels of its own libraries. These rows have the libtype `tile_oracle`, for a
    dispatcher that knows our kernel names. Raises ProblemError for a GEMM that such a table cannot express,
    and for a table with other columns.
    """
    lines = before.splitlines() or [",".join(HEADER)]
    if lines[0].split(",") != list(HEADER):
        raise ProblemError("the table has other columns than AITER's of bf16 and fp16: write another file")
    rows = {
        tuple(cells[:_KEY]): (cells[_KEY], line) for line, cells in zip(lines, csv.reader(lines), strict=True)
    }
    kept = []
    for one in winners:
        problem = one.problem
        if problem.layout != _LAYOUT:
            raise ProblemError(f"{problem.id}: AITER's tuned tables hold only GEMMs of layout {_LAYOUT}")
        key = (
            *(safe_cell(arch), compute_units, problem.M, problem.N, problem.K, False),
            *(TORCH[problem.dtype], TORCH[problem.result_dtype], False, False),
        )
        library, _ = rows.get(tuple(map(str, key)), (LIBTYPE, ""))
        if library != LIBTYPE:
            kept.append(f"{problem.id}: the table has a kernel of {library}, which is kept")
            continue
        gb_per_s = problem.bytes / (one.us * 1e3)
        text = io.StringIO()
        further = (problem.split_k, f"{one.us:.4f}", safe_cell(one.kernel), "0.0", f"{one.tflops:.2f}")
        csv.writer(text, lineterminator="").writerow((*key, LIBTYPE, 0, *further, f"{gb_per_s:.2f}"))
        rows[tuple(map(str, key))] = (LIBTYPE, text.getvalue())
    return "".join(f"{line}\n" for _, line in rows.values()), kept
