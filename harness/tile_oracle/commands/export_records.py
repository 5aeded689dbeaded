"""`tile-oracle export-records`: writes records in the formats of other tuners."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HELP = "write records as Kernel Tuner's cache files or as T4 results"

_EXAMPLES = """\
examples:
  tile-oracle export-records reports/RUN --format kernel-tuner -o caches
  tile-oracle export-records measured.parquet --format t4 -o results

A configuration is the values of a kernel's fields; the kernel's name stands beside them. Records have no
times of compilation, verification, search and framework: the files state 0. `tile-oracle import` reads the
files again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tile-oracle export-records`."""
    parser.description = (
        "Kernel Tuner tunes one problem at a time, so each problem has a file, FOLDER/ID.json."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("records", nargs="+", metavar="RECORDS", help="runs' folders or parquet files")
    parser.add_argument(
        "--format",
        required=True,
        choices=("kernel-tuner", "t4"),
        help="cache files of Kernel Tuner (schema 1.1.0), or results in the T4 format (schema 1.0.0)",
    )
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="FOLDER", help="where the files go")


def run(args: argparse.Namespace) -> int:
    """Writes the files; 0. Raises RecordError."""
    from tile_oracle.foreign.kernel_tuner import kernel_tuner_files
    from tile_oracle.problem import problem_from_id
    from tile_oracle.record.dataset import load_records
    from tile_oracle.record.dataset_file import write_whole

    count = 0
    for problem, document in kernel_tuner_files(load_records(args.records), t4=args.format == "t4"):
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        write_whole(text.encode("utf-8"), args.out / f"{problem_from_id(problem).id}.json")
        count += 1
    print(f"{count} file{'' if count == 1 else 's'} in {args.out}")
    return 0
