"""`tile-oracle runs compare --records`: an old picker and a new one."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pandas as pd

from tile_oracle.commands.arguments import put, put_text
from tile_oracle.commands.evaluate import overlap_with, picker_for, rank_recorded, training_lines
from tile_oracle.comparison.wording import markdown, open_pairs, paragraph, terminal_lines
from tile_oracle.evaluation.evaluate import Comparison, compare, evaluate
from tile_oracle.record.dataset import load_records
from tile_oracle.session.outcome import Outcome
from tile_oracle.terminal.counts import count


def run(args: argparse.Namespace) -> int:
    """Prints the report and writes the files; the exit status of a session with this verdict. Raises
    RecordError, ModelError."""
    records = load_records(args.records)
    pickers = [picker_for(one, records) for one in (args.old, args.new)]
    seen = {problem for one in pickers for problem in overlap_with(one, records).problems}
    old, new = (
        evaluate(Path(word).name, records, rank_recorded(one, records)[0])
        for word, one in zip((args.old, args.new), pickers, strict=True)
    )
    comparison = compare(records, old, new, in_sample=seen, margin_percent=args.same)
    changes, notes = comparison.changes, training_lines(pickers, records)
    put(args, comparison.as_json(), [*render(comparison), *notes])
    verdict = comparison.verdict
    first = [
        ("verdict", f"{verdict.state}: {verdict.message}"),
        *(
            (f"{name} efficiency", f"{one.old:.2f} % → {one.new:.2f} %, {one.change} points")
            for name, one in comparison.efficiency.items()
        ),
        *(("training", note) for note in notes),
    ]
    if args.markdown:
        said = paragraph(
            changes, old.selection, new.selection, _settling(args, records) if args.pairs else ""
        )
        put_text(args.markdown, f"{said}\n\n{markdown(changes, first)}")
    if args.pairs:
        put_text(args.pairs, open_pairs(changes).to_csv(index=False))
    return int(Outcome.of_state(verdict.state))


def _settling(args: argparse.Namespace, records: pd.DataFrame) -> str:
    """Returns the command that measures the open pairs on the records' target again."""
    target = str(records["target"].dropna().iloc[0])
    words = ["pytest", "--problem-set", args.problem_set or "SET", "--target", target]
    return shlex.join([*words, f"--pairs={args.pairs}", f"--models={args.new},{args.old}"])


def render(comparison: Comparison) -> list[str]:
    """Returns the comparison as lines of text."""
    changes, seen = comparison.changes, comparison.in_sample
    trained = f"compared: {count(len(changes.old.picks), 'problem')}"
    if any(problem in seen for problem in changes.old.picks):
        trained += ", all of which a model was trained on"
    elif seen:
        trained += f" that neither model was trained on; {len(seen):,} others are left out"
    table = [f"{'efficiency, %':<16}{'old':>8}{'new':>8}   new - old, points"]
    table += [
        f"{name:<16}{one.old:>8.2f}{one.new:>8.2f}   {one.change}"
        for name, one in comparison.efficiency.items()
    ]
    verdict = f"verdict: {comparison.verdict.state}: {comparison.verdict.message}"
    return [trained, "", *table, "", *terminal_lines(changes), "", verdict]
