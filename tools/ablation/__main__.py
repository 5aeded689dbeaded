"""`python -m tools.ablation`: compares training recipes on the same records, one change at a time."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tile_oracle.errors import ModelError
from tile_oracle.record.dataset import load_records
from tile_oracle.training.recipe import RECIPES, recipe_named
from tools.ablation.row import DEFAULT_ROWS, AblationRow, ablation_row
from tools.command_line import run_tool

_EXAMPLES = """\
examples:
  python -m tools.ablation train.parquet --test measured.parquet
  python -m tools.ablation train.parquet --recipes published,log_time,default --folds 5

Cross-validation by family holds out all sizes of a layer at once. Numbers in [ ] are 95 % bootstrap
intervals over the test problems.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `python -m tools.ablation`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "recipes:\n" + "\n".join(f"  {r.name:<20} {r.meaning}" for r in RECIPES.values())
    parser.epilog = _EXAMPLES
    parser.add_argument("records", nargs="+", metavar="RECORDS", help="records to train on")
    parser.add_argument(
        "--test", nargs="+", metavar="RECORDS", help="records of other problems to evaluate on"
    )
    parser.add_argument(
        "--recipes", default=",".join(DEFAULT_ROWS), metavar="NAME,...", help="(default: all)"
    )
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads of LightGBM (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints one row per recipe as soon as it is computed. Raises ModelError, RecordError."""
    recipes = [recipe_named(name.strip()) for name in args.recipes.split(",")]
    records = load_records(args.records)
    test = load_records(args.test) if args.test else None
    if test is not None and set(test["problem"]) & set(records["problem"]):
        raise ModelError("--test shares problems with the training records; give records of other problems")
    tested = f"   {'test mean':<24}{'test P10':<24}{'top 3':>8}" if test is not None else ""
    print(
        f"{'recipe':<20}{'CV problem':>16}{'CV family':>16}{tested}{'s':>7}\n"
        f"{'':<20}{'mean    P10':>16}{'mean    P10':>16}"
    )
    for recipe in recipes:
        started = time.monotonic()
        row = ablation_row(recipe, records, test, args.folds, args.seed, args.threads)
        print(_line(row, time.monotonic() - started), flush=True)
    return 0


def _line(row: AblationRow, seconds: float) -> str:
    text = f"{row.recipe:<20}"
    for efficiency in (row.by_problem, row.by_family):
        text += f"{efficiency.mean_percent or 0.0:>8.2f}{efficiency.p10_percent or 0.0:>8.2f}"
    if row.test is not None:
        headlines = row.test.headlines
        text += f"   {headlines['mean']!s:<24}{headlines['P10']!s:<24}{row.test.top['top_3'].value:>8.2f}"
    return text + f"{seconds:>7.1f}"


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line; the result is the exit status."""
    return run_tool("ablation", add_arguments, run, words)


if __name__ == "__main__":
    sys.exit(main())
