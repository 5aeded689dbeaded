"""`tile-oracle import`: foreign measurements -> a parquet file of records."""

from __future__ import annotations

import argparse

import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.record.importers import import_file, write_records
from tile_oracle.record.schema import op_of

HELP = "convert published CSV or JSON results and benchmark logs into records"

_EXAMPLES = """\
examples:
  tile-oracle import benchmark.csv --arch gfx950 -o gfx950.parquet
  tile-oracle import a.csv b.json run.log --arch gfx950 -o all.parquet
  tile-oracle import benchmark.csv --arch gfx950 --trust-unverified -o as_published.parquet

what a row needs: a kernel name (kernel, kernel_name or name), the dimensions N C K Hi Wi Y X (and, where
they are not 1 or 0, G, strides, pads, dilations), and latency_ms. tflops and non_zero are checked.
Of GEMM the dimensions are M N K (and split_k where it is not 1); what a result says besides (dtype_a,
layout_a, stride_a, ..., structured_sparsity) must be so of its kernel and of dense matrices. One call
imports one operation.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tile-oracle import`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Reads published benchmark CSV, JSON and parquet results, raw benchmark logs (JSON among other "
        "lines), and our own records. Rows that cannot be right are refused and counted. Rows whose non_zero "
        "count shows that the kernel did not write its output get the status wrong."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="CSV, JSON, log, parquet file, or a run's folder"
    )
    parser.add_argument(
        "--arch", required=True, metavar="ARCH", help="architecture that was measured, gfx950 for one"
    )
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="parquet file to write")
    parser.add_argument(
        "--trust-unverified",
        action="store_true",
        help="keep rows that left their output unwritten as ok: published figures count them",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the records and says what became of every row. Raises RecordError, RuleError."""
    if not str(args.out).endswith(".parquet"):
        raise RecordError(f"{args.out}: records are written as one .parquet file")
    frames = []
    for path in args.files:
        imported = import_file(path, args.arch, args.trust_unverified)
        print(imported.summary)
        for line in imported.summary.shown:
            print(f"  {line}")
        frames.append(imported.records)
    op_of(frame["op"].iloc[0] for frame in frames)
    records = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    write_records(records, args.out)
    print(
        f"{len(records)} records of {records['problem'].nunique()} problems and "
        f"{records['kernel'].nunique()} kernels in {args.out}"
    )
    return 0
