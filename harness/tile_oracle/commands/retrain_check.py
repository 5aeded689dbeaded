"""`tile-oracle retrain-check`: trains a new model and says whether it may replace the current one."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from tile_oracle.commands.compare_models import render
from tile_oracle.commands.evaluate import rankings_of
from tile_oracle.commands.json_output import add_json, print_json, progress_stream
from tile_oracle.commands.options import add_training
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.compare import compare
from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.record.dataset import load_records
from tile_oracle.training.fit import Effort
from tile_oracle.training.train import train

HELP = "validate the current model, train a new one, validate it, compare"

_EXAMPLES = """\
example:
  tile-oracle retrain-check models/current --train train.parquet --validate measured.parquet -o models/new

Exit status: 0 the new model may replace the current one, 1 it may not. The new model is kept either way.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tile-oracle retrain-check`."""
    parser.description = (
        "The published test of a model's quality: current model, new model, both on unseen problems."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "current", metavar="CURRENT", help="the current model folder, or a CSV file of its picks"
    )
    parser.add_argument("--train", nargs="+", required=True, metavar="RECORDS", help="records to train on")
    parser.add_argument(
        "--validate", nargs="+", required=True, metavar="RECORDS", help="records of other problems"
    )
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="where the new model is written")
    add_training(parser, folds=3)
    add_json(parser, "the comparison")


def run(args: argparse.Namespace) -> int:
    """Trains, compares, prints. Raises ModelError when the two sets of problems overlap."""
    learn, validate = load_records(args.train), load_records(args.validate)
    shared = set(learn["problem"]) & set(validate["problem"])
    if shared:
        raise ModelError(
            f"{len(shared)} problems are in --train and in --validate ({sorted(shared)[0]}): "
            "a model is not validated on what it learnt"
        )
    old = evaluate(Path(args.current).name, validate, rankings_of(args.current, validate))
    arch, dtype = (str(validate[name].iloc[0]) for name in ("arch", "dtype"))
    direction = str(validate["direction"].iloc[0]) if "direction" in validate else None
    model = train(
        learn,
        args.recipe,
        arch,
        direction,
        dtype,
        n_splits=args.folds,
        effort=Effort(args.seed, args.threads, partial(print, file=progress_stream(args), flush=True)),
        sources=tuple(Path(path).name for path in args.train),
    )
    model.save(args.out)
    new = evaluate(Path(args.out).name, validate, rankings_of(args.out, validate), learn)
    comparison = compare(validate, old, new)
    if args.json:
        print_json(comparison.as_json())
    else:
        print()
        print(render(comparison))
    return 1 if comparison.verdict.failed else 0
