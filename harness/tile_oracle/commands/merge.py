"""`tile-oracle runs merge`: records of several runs and machines -> one file, or an oracle.

Reads run folders, folders of parts and parquet files of records, including runs in progress and killed
runs, and writes one parquet file atomically. Equal rows give equal bytes, in any order.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.commands.arguments import ONLY_JSON, RECORDS_HELP, progress_stream, refuse_replacing, show
from tile_oracle.errors import RecordError
from tile_oracle.files.vouched_files import vouch_for_oracle
from tile_oracle.judge.baseline import baseline_path
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import oracle_file
from tile_oracle.pool.rules import set_name
from tile_oracle.problem_set import ProblemSet, load_problem_set
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.dataset_file import oracle_bytes, write_dataset, write_whole
from tile_oracle.record.merge import align_runs, merge_records, oracle_records
from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET, pool_of_sources
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count


def write_oracle(
    sources: Sequence[Path],
    *,
    out: Path | None = None,
    model: Path | None = None,
    problem_set: ProblemSet | None = None,
    kernel_set: str | None = None,
    device: str | None = None,
) -> tuple[Path, list[str]]:
    """Merges the sources and writes their oracle to `out`, or into the model's folder; returns the path and
    lines that say what is in it. Raises RecordError."""
    merged, _ = merge_records(read_rows(source) for source in sources)
    ids = None if problem_set is None else {problem.id for problem in problem_set.problems}
    records, summary = oracle_records(merged, device, ids)
    said_set, said_filter = pool_of_sources(sources)
    pool = kernel_set or said_set or "default"
    about: dict[str, str] = {KERNEL_SET: pool, KERNEL_FILTER: said_filter}
    if problem_set is not None:
        about |= {"problem set": problem_set.name, "problem set sha256": problem_set.sha256}
    if out is None:
        if model is None or problem_set is None:
            raise RecordError("an oracle needs a file, or a model's folder and a problem set")
        named = summary.device or str(records["arch"].iloc[0])
        out = oracle_file(baseline_path(model.parent, model.name, named, problem_set.name, set_name(pool)))
    write_whole(oracle_bytes(records, about), out)
    vouch_for_oracle(out, RecordError)
    lines = summary.lines()
    if ids is not None and summary.problems < len(ids):
        lines.append(f"  {count(len(ids) - summary.problems, 'problem')} of the set without a record")
    return out, lines


EXAMPLES = """\
examples:
  tile-oracle runs merge reports/monday reports/tuesday -o measured.parquet
  tile-oracle runs merge --align oracle.parquet reports/new_kernels -o both.parquet   a pool that grew
  tile-oracle runs merge reports/my_run --format oracle -o oracle.parquet          what sessions replay
  tile-oracle runs merge measured.parquet --format oracle --model models/mine --problem-set forward_smoke

parquet: all rows of all runs, each measurement once. Different runs with the same name are renamed (NAME~2).

oracle: all rounds and statuses of one device, with the newest binary of each kernel. With --model the file
goes where `pytest --target replay` looks for it: MODEL/DEVICE/PROBLEM SET/KERNEL SET.parquet.
"""

ARGUMENTS = argument_table(f"""
records RECORDS...  {RECORDS_HELP}
-o --out FILE.parquet  the file to write; may be one of RECORDS, which grows
--format parquet|oracle=parquet  parquet: all records; oracle: what sessions replay
--align  scale the times of a problem's other runs to its largest run, by the kernels that both measured:
    devices and days differ by some percent
--model FOLDER  with --format oracle: the model's folder to ship it with, instead of -o
--problem-set SET  with --format oracle: only the problems of this set (needed with --model)
--kernel-set RULES  with --format oracle: the pool (default: as the runs recorded it, else default)
--device NAME  with --format oracle: only the records of this device
--quiet  only the summary
--json  print the summary {ONLY_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Writes the file and reports what is in it. Raises HarnessError."""
    oracle = args.format == "oracle"
    if (args.out is None) == (args.model is None):
        raise RecordError("name the file to write: -o FILE.parquet or, for an oracle, --model FOLDER")
    if oracle or args.align:
        refuse_replacing(args.out, "parquet", args.records)
    return _oracle(args) if oracle else _merge(args)


def _merge(args: argparse.Namespace) -> int:
    tables = []
    for path in args.records:
        tables.append(read_rows(path))
        if not args.quiet:
            print(f"{path}: {len(tables[-1]):,} rows", file=progress_stream(args), flush=True)
    records, summary = merge_records(tables)
    lines = summary.lines()
    alignment = None
    if args.align:
        records, alignment = align_runs(records)
        lines += alignment.lines()
    about = dict(zip((KERNEL_SET, KERNEL_FILTER), pool_of_sources(args.records), strict=True))
    size = write_dataset(records, args.out, {name: value for name, value in about.items() if value})
    document = {"file": args.out, "bytes": size, "summary": summary, "alignment": alignment}
    return show(args, document, [*lines, f"{args.out}: {size / 1e6:.2f} MB"])


def _oracle(args: argparse.Namespace) -> int:
    if args.model is not None:
        read_spec(args.model)  # a replay looks only into model folders
        if args.problem_set is None:
            raise RecordError("--model keeps an oracle by problem set: name it with --problem-set")
    path, lines = write_oracle(
        args.records,
        out=args.out,
        model=args.model,
        problem_set=load_problem_set(args.problem_set) if args.problem_set else None,
        kernel_set=args.kernel_set,
        device=args.device,
    )
    size = path.stat().st_size
    document = {"file": path, "bytes": size, "summary": lines}
    return show(args, document, [*lines, f"{path}: {size / 1e6:.2f} MB"])
