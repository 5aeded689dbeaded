"""`tile-oracle runs oracle`: records -> the oracle file that sessions replay."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.commands.arguments import RECORDS, argument, one_of
from tile_oracle.errors import RecordError

if TYPE_CHECKING:
    import pandas as pd

    from tile_oracle.problem_set import ProblemSet

EXAMPLES = """\
examples:
  tile-oracle runs oracle reports/my_run -o oracle.parquet
  pytest --problem-set forward_validation_300 --oracle=oracle.parquet
  tile-oracle runs oracle measured.parquet --model models/mine --problem-set forward_validation_300

With --model the file is written where `pytest --target replay` looks for it: into the model's folder, beside
the baseline (MODEL/DEVICE/PROBLEM SET/KERNEL SET.parquet). The file has every row of the records, all rounds
and statuses, for one device and the newest binary of each kernel. It is read like any other file of records.
It omits busy_ms, which no replay reads, and tflops, which is computed from latency_ms when the file is read.
"""


ABOUT = "Writes a compact parquet file of the records; equal records give equal bytes."
ARGUMENTS = (
    RECORDS,
    one_of(
        argument("-o --out", "FILE", "the .parquet file to write", type=Path),
        argument("--model", "FOLDER", "the model's folder to ship it with", type=Path),
        required=True,
    ),
    argument("--problem-set", "SET", "only the problems of this set (needed with --model)"),
    argument(
        "--kernel-set", "RULES", "the pool that was measured (default: as the runs recorded it, else default)"
    ),
    argument("--device", "NAME", "only the records of this device"),
)


def run(args: argparse.Namespace) -> int:
    """Writes the file and prints what is in it. Raises HarnessError."""
    from tile_oracle.model.model_folder import read_spec
    from tile_oracle.problem_set import load_problem_set

    if args.model is not None:
        read_spec(args.model)  # a replay looks only into model folders
    if args.model is not None and args.problem_set is None:
        raise RecordError("--model keeps an oracle by problem set: name it with --problem-set")
    if args.out is not None and args.out.suffix != ".parquet":
        raise RecordError(f"{args.out}: records are written as one .parquet file")
    problem_set = load_problem_set(args.problem_set) if args.problem_set else None
    path, lines = write_oracle(
        args.records,
        out=args.out,
        model=args.model,
        problem_set=problem_set,
        kernel_set=args.kernel_set,
        device=args.device,
    )
    print("\n".join(lines))
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
    return 0


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
    from tile_oracle.files.vouched_files import vouch_for_oracle
    from tile_oracle.judge.baseline_file import baseline_path
    from tile_oracle.model.store import oracle_file
    from tile_oracle.pool.rules import set_name
    from tile_oracle.record.dataset import read_rows
    from tile_oracle.record.dataset_file import write_whole
    from tile_oracle.record.merge import merge_records
    from tile_oracle.record.oracle_file import oracle_bytes
    from tile_oracle.record.oracle_records import oracle_records
    from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET, pool_of_sources

    merged, _ = merge_records(read_rows(source) for source in sources)
    ids = None if problem_set is None else {problem.id for problem in problem_set.problems}
    records, summary = oracle_records(merged, device, ids)
    said_set, said_filter = pool_of_sources(sources)
    pool = kernel_set or said_set or "default"
    about = _about(records, problem_set) | {KERNEL_SET: pool, KERNEL_FILTER: said_filter}
    if out is None:
        if model is None or problem_set is None:
            raise RecordError("an oracle needs a file, or a model's folder and a problem set")
        named = summary.device or str(records["arch"].iloc[0])
        out = oracle_file(baseline_path(model.parent, model.name, named, problem_set.name, set_name(pool)))
    write_whole(oracle_bytes(records, about), out)
    vouch_for_oracle(out, RecordError)
    lines = summary.lines()
    if ids is not None and summary.problems < len(ids):
        lines.append(f"  {len(ids) - summary.problems:,} problems of the set have no record")
    return out, lines


def _about(records: pd.DataFrame, problem_set: ProblemSet | None) -> dict[str, Any]:
    if problem_set is None:
        return {}
    return {"problem set": problem_set.name, "problem set sha256": problem_set.sha256}
