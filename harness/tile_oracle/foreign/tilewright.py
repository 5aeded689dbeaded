"""tilewright, a ranker of hipBLASLt's solutions: the log of its picks, and what it learns from.

    [TILEWRIGHT_PICK] m=4096 n=16 k=512 b=1 tA=T tB=N ... top1_sig=(mt_m=128,mt_n=16,mt_k=64,...
    is_winner,is_skip,is_origami_pick,rank,sol_idx_global,...,hipblaslt-Gflops,hipblaslt-GB/s,us,...,mt_m,...

TILEWRIGHT_PICK_LOG=1 makes hipBLASLt print the picks. They name no data type, so they are for any.
`chunk_*.csv` has results of hipblaslt-bench; those of skipped solutions are one cold call. Products are
column-major.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tile_oracle.foreign.blas import FIELDS as OF_BENCH
from tile_oracle.foreign.blas import of_call, of_result
from tile_oracle.foreign.contract import UNUSED, Field, is_true
from tile_oracle.foreign.entry import Entry
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.operations.gemm.problem import GEMM_DTYPES

CHUNK = ("sol_idx_global", "is_skip", "transa")
"""Columns of a table of measurements, in lower case."""
PICK = re.compile(
    r"\[TILEWRIGHT_PICK\] m=(?P<m>\d+) n=(?P<n>\d+) k=(?P<k>\d+) b=(?P<batch_count>\d+) "
    r"tA=(?P<transA>[NT]) tB=(?P<transB>[NT]) .*?"
    r"\(mt_m=(?P<tile_n>\d+),mt_n=(?P<tile_m>\d+),mt_k=(?P<tile_k>\d+),"
)
_OF_SOLUTION = (
    *("mt_m", "mt_n", "mt_k", "mi_m", "mi_n", "mi_k", "occupancy", "cache_hints_a", "cache_hints_b"),
    *("grvw_a", "grvw_b", "gwvw_d", "is_winner", "is_skip", "is_origami_pick", "sol_idx_local"),
    *("flush", "use_gpu_timer", "samples", "cv", "rel_iqr", "sol_idx_global"),
)
FIELDS: Mapping[str, Field] = {**OF_BENCH, **dict.fromkeys(_OF_SOLUTION, UNUSED)}


def pick_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every pick, for each data type."""
    for line in listed.lines():
        if found := PICK.search(line):
            call = found.groupdict()
            tile = (int(call.pop("tile_m")), int(call.pop("tile_n")), int(call.pop("tile_k")))
            for dtype in GEMM_DTYPES:
                one = of_call({**call, "a_type": dtype, "b_type": dtype}, f"line {listed.line}")
                yield replace(one, tile=tile)


def chunk_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every measurement. Raises ProblemSetError for text that is no table."""
    for row in listed.rows(listed.lines()):
        text = ",".join(row.values())
        if is_true(row["is_skip"].lower()):
            yield Entry(why="a solution that was skipped after one cold call has no time", text=text)
            continue
        members = {name: cell for name, cell in row.items() if name != "status"}
        yield of_result("hipblaslt", members, text, {"index": row["sol_idx_global"]})
