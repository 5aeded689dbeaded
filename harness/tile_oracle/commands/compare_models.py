"""`tile-oracle compare`: compares an old model with a new one; the exit status is the verdict."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tile_oracle.commands.evaluate import rankings_of, training_lines
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.compare import Comparison, compare
from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.record.dataset import load_records

HELP = "compare a new model with an old one and say whether it may replace it"

_EXAMPLES = """\
examples:
  tile-oracle compare models/old models/new --records measured.parquet
  tile-oracle compare published_picks.csv models/new --records measured.parquet --json delta.json

The verdict applies the gate's criteria with the old model as the baseline: mean and median within 0.5
points, P10 within 2, no problem more than 10 points worse, coverage not lower. Exit status: 0 passed,
1 failed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tile-oracle compare`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Both models rank the measured kernels of the same problems; intervals are paired bootstrap."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("old", metavar="OLD", help="a model folder, or a CSV file of picks")
    parser.add_argument("new", metavar="NEW", help="a model folder, or a CSV file of picks")
    parser.add_argument(
        "--records", nargs="+", required=True, metavar="RECORDS", help="measurements to judge by"
    )
    parser.add_argument("--json", metavar="FILE", help="write the comparison as JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the report; 0 when the verdict is passed, 1 when it failed. Raises RecordError, ModelError."""
    records = load_records(args.records)
    old, new = (evaluate(Path(m).name, records, rankings_of(m, records)) for m in (args.old, args.new))
    comparison = compare(records, old, new)
    print("\n".join([render(comparison), *training_lines([args.old, args.new], records)]))
    if args.json:
        try:
            Path(args.json).write_text(json.dumps(comparison.as_json(), indent=2, default=str) + "\n")
        except OSError as error:
            raise ModelError(f"cannot write {args.json}: {error.strerror}") from None
    return 1 if comparison.verdict.failed else 0


def render(comparison: Comparison) -> str:
    """The comparison as text."""
    count = len(comparison.changes)
    lines = [
        f"old: {comparison.old.name}   new: {comparison.new.name}",
        f"same pick: {comparison.agreement}/{count} ({100 * comparison.agreement / count:.1f} %)",
        "",
        f"{'efficiency, %':<16}{'old':>8}{'new':>8}   new - old, points",
    ]
    for name, delta in comparison.deltas.items():
        old, new = comparison.old.headlines[name].value, comparison.new.headlines[name].value
        lines.append(f"{name:<16}{old:>8.2f}{new:>8.2f}   {delta}")
    for word, number in (
        ("improved", comparison.improved),
        ("same", comparison.same),
        ("degraded", comparison.degraded),
    ):
        lines.append(f"{word:<16}{number:>8} problems ({100 * number / count:.1f} %)")
    lines += ["", "regressions"]
    for _, row in comparison.regressions().head(20).iterrows():
        picks = " -> ".join(parse_kernel_name(row[side]).short_name for side in ("pick_old", "pick_new"))
        lines.append(f"  {row['delta']:+7.2f} points  {row['problem']}: {picks}")
    verdict = comparison.verdict
    lines += ["", f"verdict: {verdict.state}: {verdict.message}"]
    return "\n".join(lines)
