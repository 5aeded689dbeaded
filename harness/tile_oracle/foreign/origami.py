"""Origami's rankings of its regression test (`ranking_gfx942_bf16_NN.csv`): tiles, by predicted times.

    problem,rank,latency,mt_m,mt_n,mt_k,mi_m,mi_n,mi_k,occ,wgm
    36912x62832x4448x1,0,5.11762e+07,448,512,32,32,32,8,2,1

A problem is M x N x K x batch of column-major matrices, so its M and N, and those of the tile, are our N and
M (operations.gemm.blas_call). Data type and transposition are in the file's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tile_oracle.foreign.blas import of_call
from tile_oracle.foreign.contract import UNUSED, Field
from tile_oracle.foreign.entry import Entry
from tile_oracle.foreign.list_file import ListFile

_FILE = re.compile(r"(?:.*_)?(?P<gfx>gfx\w+?)_(?P<dtype>[a-z0-9]+)_(?P<trans>[NT]{2})")

FIELDS: Mapping[str, Field] = dict.fromkeys(
    ("problem", *(f"m{what}_{axis}" for what in "ti" for axis in "mnk"), "occ", "wgm"), UNUSED
)


def ranking_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every row. Raises ProblemSetError for a name that does not state its type."""
    named = _FILE.fullmatch(listed.path.stem)
    if named is None:
        raise listed.error(
            "its name has to say architecture, type and transposition: ranking_gfx942_bf16_NN", 0
        )
    a, b = named["trans"][0], named["trans"][1]
    around = {"a_type": named["dtype"], "b_type": named["dtype"], "transA": a, "transB": b}
    for row, _ in listed.table():
        sizes = row["problem"].split("x")
        call = around | dict(zip(("m", "n", "k", "batch_count"), sizes, strict=False))
        one = of_call(call, f"line {listed.line}")
        tile = (int(row["mt_n"]), int(row["mt_m"]), int(row["mt_k"]))
        yield replace(one, gfx=named["gfx"], text=row["problem"], tile=tile, rank=int(row["rank"]))
