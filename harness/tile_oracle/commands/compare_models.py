"""`tile-oracle runs compare --records`: an old model and a new one."""

from __future__ import annotations

import argparse
from pathlib import Path

from tile_oracle.commands.evaluate import rankings_of, training_lines
from tile_oracle.commands.json_output import STDOUT, put_json
from tile_oracle.evaluation.compare import Comparison, compare
from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.record.dataset import load_records


def run(args: argparse.Namespace) -> int:
    """Prints the report; 0 when the verdict is passed, 1 when it failed. Raises RecordError, ModelError."""
    records = load_records(args.records)
    old, new = (evaluate(Path(m).name, records, rankings_of(m, records)) for m in (args.old, args.new))
    comparison = compare(records, old, new)
    if args.json != STDOUT:
        print("\n".join([render(comparison), *training_lines([args.old, args.new], records)]))
    put_json(args.json, comparison.as_json())
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
