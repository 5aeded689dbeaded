"""`tile-oracle runs export`: writes records in the formats of other tuners."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tile_oracle.commands.arguments import argument

EXAMPLES = """\
examples:
  tile-oracle runs export reports/RUN --format kernel-tuner -o caches
  tile-oracle runs export measured.parquet --format t4 -o results

A configuration is the values of a kernel's fields; the kernel's name stands beside them. Records have no
times of compilation, verification, search and framework: the files state 0. `tile-oracle runs import` reads
the files again.
"""


ABOUT = "Kernel Tuner tunes one problem at a time, so each problem has a file, FOLDER/ID.json."
ARGUMENTS = (
    argument("records", "RECORDS", "runs' folders or parquet files", nargs="+"),
    argument(
        "--format",
        None,
        "cache files of Kernel Tuner (schema 1.1.0), or results in the T4 format (schema 1.0.0)",
        choices=("kernel-tuner", "t4"),
        required=True,
    ),
    argument("-o --out", "FOLDER", "where the files go", type=Path, required=True),
)


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
