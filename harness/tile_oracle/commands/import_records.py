"""`tile-oracle runs import`: converts measurements of other tools into a parquet file of records.

Reads published benchmark results, raw logs, and files of other tuners and libraries. Rows that contradict
themselves, their kernel or the device are refused and counted, with the first of each reason. Rows that say
that their result is not right get the status wrong.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tile_oracle.commands.arguments import refuse_replacing, write_text
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.foreign.summary import plain_name
from tile_oracle.operation import operation_names
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS
from tile_oracle.problem_set import format_problem_set, problem_set_of_ids
from tile_oracle.record.merge import merge_records
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.documentation import page
from tile_oracle.terminal.progress_line import steps

EXAMPLES = f"""\
examples:
  tile-oracle runs import benchmark.csv --arch gfx950 -o gfx950.parquet     and gfx950_problems.csv
  tile-oracle runs import a.csv b.json run.log --arch gfx950 -o all.parquet

A row has a kernel's name (kernel, kernel_name or name), the dimensions of its problem (N C K Hi Wi Y X, or
M N K) and latency_ms (or latency_us, time(ns), ...). All that it states besides must hold: its status,
device, types, layouts, throughput. Fields that no format knows are listed; another device or a failure
that they state counts. One call imports one operation, of a file of several that of most rows, or --op.
Files of other programs are recognized; {page("formats")} lists all formats.
"""


ARGUMENTS = argument_table(
    f"""
files FILE...  CSV, JSON, log or parquet file
--arch ARCH!  architecture that was measured, such as gfx950
-o --out FILE.parquet!  file to write; its problems are written beside it, as gfx950_problems.csv is for
    gfx950.parquet
--dtype bf16|fp16|fp32  data type of a sweep of CK DSL (default: what the file's name says)
--layout LAYOUT=  memory order of A, B and C in a tuner's file that does not state it (Triton, Inductor)
--device NAME  take the rows of this device from a file of several; all: they are of one model
--op OP=  take the rows of this operation, of {", ".join(operation_names())} (default: those of most rows)
--trust-unverified  keep rows that left their output unwritten as ok, as published results do
""",
    layout=GEMM_LAYOUTS,
    op=operation_names(),
)


def run(args: argparse.Namespace) -> int:
    """Writes the records and reports how many rows were kept and refused. Raises RecordError, RuleError."""
    problem_set = args.out.with_name(f"{args.out.stem}_problems.csv")
    refuse_replacing(problem_set, "csv", args.files)
    frames = []
    for path in steps("importing files", args.files):
        imported = import_file(
            path, args.arch, args.trust_unverified, args.dtype, args.device, args.layout, args.op
        )
        print(imported.summary, *imported.summary.shown, sep="\n  ")
        frames.append(imported.records)
    records = frames[0]
    if len(frames) > 1:  # whose files may have the same name
        records, merged = merge_records(frames)
        print(*merged.lines()[1:], sep="\n")
    write_records(records, args.out)
    _write_problem_set(records, args.files, args.out, problem_set)
    print(
        f"{count(len(records), 'record')} of {count(records['problem'].nunique(), 'problem')} and "
        f"{count(records['kernel'].nunique(), 'kernel')} in {args.out}, the problems in {problem_set}"
    )
    print(f"replay them: pytest --oracle={shlex.quote(str(args.out))}")
    return 0


def _write_problem_set(records: pd.DataFrame, files: Sequence[Path], out: Path, path: Path) -> None:
    """Writes the problems of the records, which are in `out`, as a set. Raises RecordError."""
    recorded = problem_set_of_ids(map(str, records["problem"].unique()), out)
    provenance = f"the problems of {out.name}, imported from {', '.join(file.name for file in files)}"
    text = format_problem_set(recorded.problems, recorded.sources, plain_name(provenance))
    write_text(path, text)
