"""Tuned tables of AITER (`aiter/configs/*_tuned_gemm.csv`): one winner a GEMM shape, in and out.

A table has M, N, K and, in one of three layouts, the data type: `dtype`, `q_dtype_w`, or nothing where all
rows are of 8-bit block-scaled types. A is row-major and B is stored as N rows of K: layout rcr. `splitK` is
how the winner works and no part of the problem. Scales and bias are not part of our GEMMs either: the problem
is the matrix product inside.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.errors import ProblemError
from tile_oracle.operation.gemm.problem import GemmProblem
from tile_oracle.problem_list.list_file import ListFile, quoted
from tile_oracle.spreadsheet import cell_text, safe_cell

_NEEDED = {"cu_num", "M", "N", "K", "us", "kernelName"}
_DTYPE_COLUMNS = ("dtype", "q_dtype_w")
_DTYPES = {
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
    "torch.float8_e4m3fn": "fp8", "torch.float8_e4m3fnuz": "fp8",
}  # fmt: skip
_BLOCK_SCALED = "fp8"
"""What the tables without a data type multiply."""
_LAYOUT = "rcr"

HEADER = (
    "gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle",
    "libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw",
)  # fmt: skip
"""The layout that is written: the one with a data type of its own."""
LIBTYPE = "tile_oracle"


def is_aiter_table(head: str) -> bool:
    """Whether the first line of a file is the header row of a tuned table."""
    return set(head.partition("\n")[0].strip().split(",")) >= _NEEDED


def aiter_problems(listed: ListFile) -> Iterator[tuple[GemmProblem, str]]:
    """Every row's problem and its source: the winner and its time. Rows of data types that GEMMs here do not
    have are left out, and the file's notes count them. Raises ProblemSetError."""
    rows = csv.reader((line for line in listed.lines() if line.strip()), strict=True)
    left_out: Counter[str] = Counter()
    try:
        header = next(rows)
        for cells in rows:
            if cells == header:  # shards of one table, one behind the other, repeat it
                continue
            if len(cells) != len(header):
                raise listed.error(f"{len(cells)} cells where the header row has {len(header)} columns")
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
                f"{count:,} rows of {quoted(name)} are left out: GEMMs here have no such type"
            )


def _dtype(row: Mapping[str, str]) -> str:
    """Our word for a row's data type, or AITER's where there is none."""
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
    """A pick as a row of a tuned table. tflops: measured, or else predicted."""

    problem: GemmProblem
    kernel: str
    tflops: float

    @property
    def us(self) -> float:
        """Microseconds that the throughput makes."""
        return self.problem.flops / (self.tflops * 1e6)


def tuned_table(winners: Iterable[Winner], arch: str, compute_units: int) -> str:
    """Picks of dense GEMMs of layout rcr as a tuned table, a row a problem, in the order given.

    AITER calls kernels of its own libraries; these rows have libtype `tile_oracle` for who dispatches to the
    kernels of our names. Raises ProblemError for a GEMM that such a table cannot say.
    """
    words = {ours: theirs for theirs, ours in reversed(_DTYPES.items())}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for one in winners:
        problem = one.problem
        if problem.layout != _LAYOUT:
            raise ProblemError(f"{problem.id}: a tuned table of AITER is of GEMMs with layout {_LAYOUT}")
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
