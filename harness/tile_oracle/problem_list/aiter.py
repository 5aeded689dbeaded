"""Reads and writes AITER's tables of GEMMs (`aiter/configs/*_gemm.csv`): tuned ones, with the fastest kernel
per shape, and lists of shapes to tune.

A is row-major and B is stored as N rows of K: layout rcr. The data type is that of `dtype`, `q_dtype_w` and
`q_dtype_a`; tables without such a column state it in the kernel's or in the file's name. `splitK` belongs to
the kernel, not to the problem. Rows of other types, of batches and of unknown architectures are left out and
counted. Scales, bias, another result type and a shuffled B are counted: the problem is the product alone.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import known_archs
from tile_oracle.errors import ProblemError
from tile_oracle.files.spreadsheet import cell_text, safe_cell
from tile_oracle.foreign.contract import MORE, UNUSED, Field, against
from tile_oracle.foreign.dialect import GEMM_FIELDS
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GemmProblem
from tile_oracle.problem.dtype_words import dtype_named
from tile_oracle.problem_list.list_file import ListFile, quoted

_SIZES = ("M", "N", "K")
_OF_AITER = frozenset({"cu_num", "kernelName", "q_dtype_w", "outdtype", "scaleAB", "bpreshuffle", "libtype"})
"""Columns that only these tables have."""
_DTYPE_COLUMNS = ("dtype", "q_dtype_w", "q_dtype_a")
_DTYPE_IN_NAMES = (
    (re.compile(r"a4w4|f4gemm|fp4"), "fp4"),
    (re.compile(r"int8|i8gemm"), "int8"),
    (re.compile(r"a8w8_?(?:blockscale|blkscale)|fp8"), "fp8"),
    (re.compile(r"bf16"), "bf16"),
    (re.compile(r"fp16|f16"), "fp16"),
)
"""Words in names of kernels and files, and their types. Other a8w8 kernels are of fp8 or int8."""
_FIELDS: Mapping[str, Field] = {
    **GEMM_FIELDS,
    "outdtype": Field(holds=GEMM_FIELDS["outdtype"].holds, of="problem", why=MORE),
    **dict.fromkeys(
        ("gfx", "cu_num", "m", "n", "k", "libtype", "solidx", "kernelid", "kernelname", "splitk", "us",
         "tflops", "bw", "errratio", "err_ratio"),
        UNUSED,
    ),
}  # fmt: skip
_FILE = re.compile(r"(?:a4w4|a8w8|a16w16|bf16|fp8).*tuned.*gemm")
_LAYOUT = "rcr"

HEADER = (
    "gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle",
    "libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw",
)  # fmt: skip
"""The columns of written tables: the variant with the column `dtype`."""
LIBTYPE = "tile_oracle"
_TORCH = {
    "bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32", "fp8": "torch.float8_e4m3fn",
}  # fmt: skip


def is_aiter_table(head: str, file: str) -> bool:
    """Whether a file is one of these tables, from its first line, or from its name without an ending."""
    names = set(head.partition("\n")[0].strip().split(","))
    return names >= set(_SIZES) and bool(names & _OF_AITER or _FILE.search(file))


def aiter_problems(listed: ListFile, arch: str | None = None) -> Iterator[tuple[GemmProblem, str]]:
    """Yields each row's problem and its source: the kernel's name and its time. arch: only the rows of this
    architecture. What is left out is counted in the file's notes. Raises ProblemSetError."""
    archs: Counter[str] = Counter()
    for row in listed.rows(line for line in listed.lines() if line.strip()):
        gfx = row.get("gfx", "")
        if gfx and (gfx not in known_archs() or gfx != (arch or gfx)):
            listed.left_out[f"they are of {quoted(gfx)}"] += 1
            continue
        dtype = _dtype(row, listed.path.stem)
        if dtype not in GEMM_DTYPES:
            unknown = f"GEMMs do not support the data type {quoted(dtype)}"
            listed.left_out[unknown if dtype else _NO_DTYPE] += 1
            continue
        problem = _problem(listed, row, dtype)
        denied = against(_FIELDS, row, problem)
        if others := [reason for reason, field in denied if field.why != MORE]:
            listed.left_out[others[0]] += 1
            continue
        listed.taken.update(reason for reason, _ in denied)
        archs[gfx or "no stated architecture"] += 1
        named = [row["kernelName"]] if row.get("kernelName") else []
        yield problem, cell_text(", ".join([*named, *([f"{row['us']} us"] if row.get("us") else [])]))
    if len(archs) > 1:
        counts = ", ".join(f"{count:,} of {name}" for name, count in sorted(archs.items()))
        listed.further.append(f"rows of several architectures, {counts}: FILE.csv:ARCH takes those of one")
    if unread := [name for name in listed.header if name.lower() not in _FIELDS]:
        listed.further.append(f"ignored columns: {', '.join(map(quoted, unread[:12]))}")


_NO_DTYPE = "neither a column nor a name states the data type"


def _dtype(row: Mapping[str, str], file: str) -> str:
    """Our name of a row's data type, or AITER's if we have none; "" if nothing states it."""
    said = next((row[name] for name in _DTYPE_COLUMNS if row.get(name)), None)
    if said is not None:
        return dtype_named(said)
    names = (row.get("kernelName", "").lower(), file.lower())
    return next((dtype for name in names for pattern, dtype in _DTYPE_IN_NAMES if pattern.search(name)), "")


def _problem(listed: ListFile, row: Mapping[str, str], dtype: str) -> GemmProblem:
    for name in _SIZES:
        if not (row[name].isdigit() and row[name].isascii() and len(row[name]) < 20):
            raise listed.error(f"{name} = {quoted(row[name])} is not an integer; write digits only")
    try:
        return GemmProblem(dtype, _LAYOUT, int(row["M"]), int(row["N"]), int(row["K"]))
    except ProblemError as error:
        raise listed.error(str(error)[:300]) from None


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


def tuned_table(winners: Iterable[Winner], arch: str, compute_units: int) -> str:
    """Picks of dense GEMMs of layout rcr as a tuned table, one row per problem, in the given order.

    AITER itself calls only kernels of its own libraries. These rows have the libtype `tile_oracle`, for a
    dispatcher that knows our kernel names. Raises ProblemError for a GEMM that such a table cannot express.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for one in winners:
        problem = one.problem
        if problem.layout != _LAYOUT:
            raise ProblemError(f"{problem.id}: AITER's tuned tables hold only GEMMs of layout {_LAYOUT}")
        gb_per_s = problem.bytes / (one.us * 1e3)
        writer.writerow(
            (
                *(safe_cell(arch), compute_units, problem.M, problem.N, problem.K, False),
                *(_TORCH[problem.dtype], _TORCH[problem.result_dtype], False, False, LIBTYPE, 0),
                *(problem.split_k, f"{one.us:.4f}", safe_cell(one.kernel), "0.0"),
                *(f"{one.tflops:.2f}", f"{gb_per_s:.2f}"),
            )
        )
    return text.getvalue()
