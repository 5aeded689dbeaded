"""Reads and writes AITER's tuned tables (`aiter/configs/*_tuned_gemm.csv`): the fastest kernel per GEMM
shape.

A table has the columns M, N, K and a data type: `dtype`, `q_dtype_w`, or no column if all rows are of 8-bit
block-scaled types. A is row-major and B is stored as N rows of K: layout rcr. `splitK` belongs to the kernel,
not to the problem. Scales and bias are ignored: the problem is the matrix product alone.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.errors import ProblemError
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_list.list_file import ListFile, quoted
from tile_oracle.spreadsheet import cell_text, safe_cell

_NEEDED = {"cu_num", "M", "N", "K", "us", "kernelName"}
_DTYPE_COLUMNS = ("dtype", "q_dtype_w")
_DTYPES = {
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
    "torch.float8_e4m3fn": "fp8", "torch.float8_e4m3fnuz": "fp8",
}  # fmt: skip
_BLOCK_SCALED = "fp8"
"""The data type of tables without a column for it."""
_LAYOUT = "rcr"

HEADER = (
    "gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle",
    "libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw",
)  # fmt: skip
"""The columns of written tables: the variant with the column `dtype`."""
LIBTYPE = "tile_oracle"


def is_aiter_table(head: str) -> bool:
    """Whether a file's first line is the header row of a tuned table."""
    return set(head.partition("\n")[0].strip().split(",")) >= _NEEDED


def aiter_problems(listed: ListFile) -> Iterator[tuple[GemmProblem, str]]:
    """Yields each row's problem and its source: the kernel's name and its time. Rows of unsupported data
    types are left out and counted in the file's notes. Raises ProblemSetError."""
    rows = csv.reader((line for line in listed.lines() if line.strip()), strict=True)
    left_out: Counter[str] = Counter()
    try:
        header = next(rows)
        for cells in rows:
            if cells == header:  # concatenated shards of a table repeat the header
                continue
            if len(cells) != len(header):
                raise listed.error(f"{len(cells)} cells, but the header row has {len(header)} columns")
            row = dict(zip(header, map(str.strip, cells), strict=True))
            dtype = _dtype(row)
            if dtype not in _DTYPES.values():
                left_out[dtype] += 1
                continue
            yield _problem(listed, row, dtype), cell_text(f"{row['kernelName']}, {row['us']} us")
    except csv.Error as error:
        raise listed.error(f"not CSV: {error}") from None
    finally:
        for name, count in sorted(left_out.items()):
            listed.notes.append(
                f"{count:,} rows of {quoted(name)} are left out: GEMMs do not support this data type"
            )


def _dtype(row: Mapping[str, str]) -> str:
    """Our name of a row's data type, or AITER's if we have none."""
    said = next((row[name] for name in _DTYPE_COLUMNS if name in row), None)
    return _BLOCK_SCALED if said is None else _DTYPES.get(said, said)


def _problem(listed: ListFile, row: Mapping[str, str], dtype: str) -> GemmProblem:
    for name in ("M", "N", "K"):
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
    words = {ours: theirs for theirs, ours in reversed(_DTYPES.items())}
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
                *(words[problem.dtype], words[problem.result_dtype], False, False, LIBTYPE, 0),
                *(problem.split_k, f"{one.us:.4f}", safe_cell(one.kernel), "0.0"),
                *(f"{one.tflops:.2f}", f"{gb_per_s:.2f}"),
            )
        )
    return text.getvalue()
