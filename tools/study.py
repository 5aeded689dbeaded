"""`python -m tools.study`: evaluates a model's recipe on held-out measurements -> MODEL/study.json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.command_line import run_tool

_EXAMPLES = """\
examples:
  python -m tools.study models/mine train.parquet --test measured.parquet
  python -m tools.study models/mine train.parquet --test measured.parquet --picks "published model=picks.csv"

Trains the default and the published recipe on RECORDS, evaluates both on the test records, counts what the
output check changed, and writes MODEL/study.json, from which
`python -m tools.results` makes the results page. The file holds no measurements.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `python -m tools.study`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Held-out metrics of our recipe and of the published one."
    parser.epilog = _EXAMPLES
    parser.add_argument("model", metavar="MODEL", type=Path, help="the model's folder")
    parser.add_argument("records", nargs="+", metavar="RECORDS", help="measurements to train on")
    parser.add_argument(
        "--test", nargs="+", required=True, metavar="RECORDS", help="measurements to evaluate on"
    )
    parser.add_argument(
        "--picks",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a model's name and the CSV file of its picks for the test problems (repeatable)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of everything random (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads of LightGBM (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the file and prints the headline metrics. Raises RecordError, ModelError."""
    from tile_oracle.errors import ModelError
    from tile_oracle.evaluation.study import study, write_study
    from tile_oracle.record.dataset import load_records
    from tile_oracle.training.fit import Effort

    picks = {}
    for text in args.picks:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise ModelError(f"--picks {text!r} is not NAME=FILE")
        picks[name] = Path(path)
    document = study(
        args.model,
        load_records(args.records),
        load_records(args.test),
        picks=picks,
        sources={
            "training": ", ".join(Path(path).name for path in args.records),
            "test": ", ".join(Path(path).name for path in args.test),
        },
        effort=Effort(args.seed, args.threads, lambda line: print(line, flush=True)),
    )
    path = write_study(args.model, document)
    for row in document["rows"]:
        shown = "  ".join(
            f"{name} {row['headlines'][name]['value']:.2f}" for name in ("mean", "median", "P10")
        )
        print(f"{row['name']}: {shown}, top 3 measured {row['measure_top']['top_3']['value']:.2f}")
    print(path)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line; the result is the exit status."""
    return run_tool("study", add_arguments, run, words)


if __name__ == "__main__":
    sys.exit(main())
