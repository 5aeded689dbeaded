"""`tile-oracle runs compare --records`: an old model and a new one."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tile_oracle.commands.evaluate import overlaps, rankings_of, training_lines
from tile_oracle.commands.json_output import STDOUT, put_json, put_text
from tile_oracle.comparison.compare import PICK, compare_sides
from tile_oracle.comparison.page import comparison_html
from tile_oracle.comparison.paragraph import open_pairs, paragraph
from tile_oracle.comparison.side import side_of_records
from tile_oracle.comparison.wording import markdown
from tile_oracle.evaluation.compare import COMPARED, Comparison, compare
from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.record.dataset import load_records
from tile_oracle.session.conclusion import OUTCOME_OF_STATE


def run(args: argparse.Namespace) -> int:
    """Prints the report and writes the files; the exit status of a session with this verdict. Raises
    RecordError, ModelError."""
    records, models = load_records(args.records), (args.old, args.new)
    seen = {problem for found in overlaps(models, records).values() for problem in found.problems}
    old, new = (evaluate(Path(m).name, records, rankings_of(m, records)) for m in models)
    comparison = compare(records, old, new, in_sample=seen)
    notes = training_lines(models, records)
    if STDOUT not in (args.json, args.markdown):
        print("\n".join([render(comparison), *notes]))
    put_json(args.json, comparison.as_json())
    if args.html or args.markdown or args.pairs:
        _write_pages(args, comparison, records, notes)
    return int(OUTCOME_OF_STATE[comparison.verdict.state])


def _write_pages(
    args: argparse.Namespace, comparison: Comparison, records: pd.DataFrame, notes: list[str]
) -> None:
    """Writes the models' comparison as that of two runs that measured the same and picked otherwise."""
    compared = records[records["problem"].isin(comparison.changes["problem"])]
    both = side_of_records("", compared)
    sides = [
        replace(both, name=model.name, kind="model", picks=dict(zip(changes["problem"], picks, strict=True)))
        for changes in [comparison.changes]
        for model, picks in (
            (comparison.old, changes["pick_old"]),
            (comparison.new, changes["pick_new"]),
        )
    ]
    found = compare_sides(*sides, by=PICK, margin_percent=args.same)
    verdict = comparison.verdict
    first = [
        ("verdict", f"{verdict.state}: {verdict.message}"),
        *(
            (f"{name} efficiency", f"{old:.2f} % → {new:.2f} %, {delta} points")
            for name, old, new, delta in _figures(comparison)
        ),
        *(("training", note) for note in notes),
    ]
    if args.markdown:
        settle = _settling(args, records) if args.pairs else ""
        said = paragraph(found, comparison.old.selection, comparison.new.selection, settle)
        put_text(args.markdown, f"{said}\n\n{markdown(found, first)}")
    if args.pairs:
        put_text(args.pairs, open_pairs(found).to_csv(index=False))
    if args.html:
        put_text(args.html, comparison_html(found, first))


def _settling(args: argparse.Namespace, records: pd.DataFrame) -> str:
    """The command that measures the open pairs on the records' target again."""
    target = str(records["target"].dropna().iloc[0])
    words = ["pytest", "--problem-set", args.problem_set or "SET", "--target", target]
    return shlex.join([*words, f"--pairs={args.pairs}", f"--models={args.new},{args.old}"])


def _figures(comparison: Comparison) -> list[tuple[str, float, float, str]]:
    """(metric, old, new, their difference), in percent and points."""
    figure = comparison.figure
    return [
        (name, figure("old", of), figure("new", of), str(comparison.deltas[name]))
        for name, of in COMPARED.items()
    ]


def render(comparison: Comparison) -> str:
    """The comparison as text."""
    count, seen = len(comparison.changes), len(comparison.in_sample)
    left_out = f" that neither model was trained on; {seen:,} others are left out" if seen else ""
    if comparison.changes["problem"].isin(comparison.in_sample).any():
        left_out = ", all of which a model was trained on"
    lines = [
        f"old: {comparison.old.name}   new: {comparison.new.name}",
        f"compared: {count:,} problems{left_out}",
        f"same pick: {comparison.agreement}/{count} ({100 * comparison.agreement / count:.1f} %)",
        "",
        f"{'efficiency, %':<16}{'old':>8}{'new':>8}   new - old, points",
    ]
    lines += [f"{name:<16}{old:>8.2f}{new:>8.2f}   {delta}" for name, old, new, delta in _figures(comparison)]
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
