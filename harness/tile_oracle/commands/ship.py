"""`tile-oracle model train --problem-set`: a model folder with everything that a replayed session gates."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from tile_oracle.commands.oracle import write_oracle
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.model_card import write_card
from tile_oracle.features.code_table import CodeTable
from tile_oracle.files.vouched_files import vouch_for
from tile_oracle.model.store import OTHER_BUILDS_FILE, TRAINING_FILE
from tile_oracle.problem_set import ProblemSet, load_problem_set
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.merge import merge_records
from tile_oracle.record.oracle_records import oracle_records, records_to_learn_from
from tile_oracle.training.auxiliary_rows import not_of_shapes
from tile_oracle.training.fit import Effort
from tile_oracle.training.train import train

_say = partial(print, flush=True)


def ship(args: argparse.Namespace) -> int:
    """Writes the folder and prints its metrics. Raises HarnessError."""
    started = time.monotonic()
    problem_set = load_problem_set(args.problem_set)
    merged, summary = merge_records(read_rows(path) for path in args.records)
    _say("\n".join(summary.lines()))
    held_out, training = _divided(records_to_learn_from(merged, args.device), problem_set, args.in_sample)
    held_out, _ = oracle_records(held_out)
    also = merge_records(read_rows(path) for path in args.also)[0] if args.also else None
    model = train(
        training,
        recipe=args.recipe,
        n_splits=args.folds,
        effort=Effort(args.seed, args.threads, _say),
        sources=tuple(path.name for path in args.records),
        warm_start=args.warm_start,
        warm_trees=args.warm_trees,
        also=None if also is None else not_of_shapes(also, held_out),
        # Facts of binaries are known before anything is measured.
        code=CodeTable.of(held_out).over(CodeTable.of(training)),
    )
    model.save(args.out)
    files = {TRAINING_FILE: training}
    if model.other_builds is not None:
        files[OTHER_BUILDS_FILE] = model.other_builds
    for name, rows in files.items():
        write_dataset(rows, args.out / name)
    vouch_for(args.out, list(files), ModelError)
    oracle, lines = write_oracle(
        args.records,
        model=args.out,
        problem_set=problem_set,
        kernel_set=args.kernel_set,
        device=args.device,
    )
    _say("\n".join([*lines, f"{oracle}: {oracle.stat().st_size / 1e6:.2f} MB"]))
    status = _replay(args.problem_set, args.out, oracle, args.in_sample)
    _say(f"{write_card(args.out)}: its data, figures and limits")
    seconds = f"after {time.monotonic() - started:.0f} s"
    if status:
        _say(f"refused {seconds}: the session that judges {args.out} ended with status {status}, see above")
    else:
        _say(f"shipped in {args.out} {seconds}")
    return status


def _divided(
    records: pd.DataFrame, problem_set: ProblemSet, in_sample: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the records of the set's problems, and those to train on. Raises ModelError where there are
    none."""
    in_set = records["problem"].isin({problem.id for problem in problem_set.problems})
    held_out, others = records[in_set], records[~in_set]
    for name in ("direction", "dtype"):
        if name in records:
            # A file of a whole campaign: keep the kinds of problem of the set.
            others = others[others[name].isin(held_out[name].unique())]
    if held_out.empty:
        raise ModelError(
            f"no problem of {problem_set.name} is recorded: there is nothing to judge a model by"
        )
    if in_sample:
        _say(f"trained on the {held_out['problem'].nunique()} problems that it is judged on (--in-sample)")
        return held_out, pd.concat([held_out, others], ignore_index=True)
    if others.empty:
        raise ModelError(
            f"all records are of problems of {problem_set.name}, which are held out: add records of other "
            "problems (pytest --problem-set forward_training), or train on the same ones with --in-sample"
        )
    _say(
        f"training on {others['problem'].nunique():,} problems, {held_out['problem'].nunique():,} held out "
        f"({problem_set.name})"
    )
    return held_out, others


def _replay(problem_set: str, model: Path, oracle: Path, in_sample: bool) -> int:
    """Returns a replayed session that writes the baseline; its exit status."""
    named = Path(problem_set).expanduser()
    with tempfile.TemporaryDirectory() as folder:
        # An ini file of its own, so that settings of a surrounding project do not apply.
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        command: Sequence[str] = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--problem-set", str(named.resolve()) if named.is_file() else problem_set),
            f"--oracle={oracle.resolve()}",
            f"--model={model.resolve()}",
            f"--baseline-dir={model.resolve().parent}",
            f"--report-dir={Path.cwd() / 'reports'}",
            "--update-baseline",
            *(("--allow=in-sample",) if in_sample else ()),
        ]
        return subprocess.run(command, cwd=folder, check=False).returncode
