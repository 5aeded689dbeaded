"""The oracle file that sessions replay, from records: `tile-oracle runs merge --format oracle`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tile_oracle.errors import RecordError
from tile_oracle.files.vouched_files import vouch_for_oracle
from tile_oracle.judge.baseline_file import baseline_path
from tile_oracle.model.store import oracle_file
from tile_oracle.pool.rules import set_name
from tile_oracle.problem_set import ProblemSet
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.dataset_file import oracle_bytes, write_whole
from tile_oracle.record.merge import merge_records
from tile_oracle.record.oracle_records import oracle_records
from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET, pool_of_sources
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
