"""`tile-oracle runs merge`: records of several runs and machines -> one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from tile_oracle.commands.arguments import RECORDS, argument, flag, json_flag
from tile_oracle.commands.json_output import print_json, progress_stream

EXAMPLES = """\
examples:
  tile-oracle runs merge reports/monday reports/tuesday -o measured.parquet
  tile-oracle runs merge measured.parquet reports/wednesday -o measured.parquet    add to an existing file
  tile-oracle runs merge from_machine_a from_machine_b -o measured.parquet         copies of run folders
  tile-oracle runs merge --align oracle.parquet reports/new_kernels -o both.parquet   a pool that grew

Order and repetition of the arguments do not matter. A measurement that is given twice is kept once. A pair
that several runs measured keeps all its rows. A device_lost row is dropped if the same run measured the pair
later. Different runs with the same name are renamed (NAME~2). Differing devices, toolchains and binaries are
kept, counted and shown.
"""


ABOUT = (
    "Reads run folders, folders of parts and parquet files of records, including runs in progress and "
    "killed runs, and writes one parquet file atomically. Equal rows give equal bytes."
)
ARGUMENTS = (
    RECORDS,
    argument("-o --out", "FILE", "the .parquet file to write", type=Path, required=True),
    flag(
        "--align",
        "scale the times of a problem's other runs to its largest run, by the kernels that both "
        "measured: devices and days differ by some percent",
    ),
    flag("--quiet", "only the summary"),
    json_flag("the summary"),
)


def run(args: argparse.Namespace) -> int:
    """Writes the file and reports how many rows were kept and dropped. Raises RecordError."""
    from tile_oracle.errors import RecordError
    from tile_oracle.record.dataset import read_rows
    from tile_oracle.record.dataset_file import write_dataset
    from tile_oracle.record.merge import merge_records
    from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET, pool_of_sources

    if args.out.suffix != ".parquet":
        raise RecordError(f"{args.out}: records are written as one .parquet file")
    tables = []
    for path in args.records:
        tables.append(read_rows(path))
        if not args.quiet:
            print(f"{path}: {len(tables[-1]):,} rows", file=progress_stream(args), flush=True)
    records, summary = merge_records(tables)
    lines = summary.lines()
    alignment = None
    if args.align:
        from tile_oracle.record.align import align_runs

        records, alignment = align_runs(records)
        lines += alignment.lines()
    about = dict(zip((KERNEL_SET, KERNEL_FILTER), pool_of_sources(args.records), strict=True))
    size = write_dataset(records, args.out, {name: value for name, value in about.items() if value})
    if args.json:
        print_json({"file": args.out, "bytes": size, "summary": summary, "alignment": alignment})
        return 0
    print("\n".join(lines))
    print(f"{args.out}: {size / 1e6:.2f} MB")
    return 0
