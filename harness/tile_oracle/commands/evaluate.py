"""`tile-oracle model evaluate`: how well a model picks, on recorded measurements or by its own folder.

Ranks the measured kernels of every recorded problem and compares picks with oracles.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tile_oracle.commands.arguments import AS_JSON, RECORDS_HELP, put
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.evaluation.folder_model import Folders, pool_recorded
from tile_oracle.evaluation.model_card import model_card
from tile_oracle.judge.picker import Origin, Picker
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import folder_of_model
from tile_oracle.pickers.installed import picker_of
from tile_oracle.record.dataset import load_records, measurements_folder
from tile_oracle.record.final import problems_of
from tile_oracle.report.data import Extrapolating, Training
from tile_oracle.report.terminal import evaluation_lines
from tile_oracle.session.models import WORDS
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.documentation import page
from tile_oracle.training.extrapolation import extrapolating_picks
from tile_oracle.training.trained_on import Overlap, overlap
from tile_oracle.training.training_range import TrainingRange

EXAMPLES = """\
examples:
  tile-oracle model evaluate models/mine measured.parquet
  tile-oracle model evaluate picks.csv measured.parquet          a published file of picks in place of a model
  tile-oracle model evaluate grouped_conv_forward_bf16_sm_90     the card of a shipped model, as Markdown

The figures are those of a session that replays the records; in [ ] are 95 % bootstrap intervals over the
problems. Without RECORDS the card is printed, which `model train --problem-set` writes into the folder: the
model's measurements, devices and compilers, its figures by problem set and by kind of problem, its worst
problems, and what lies outside of its training.
"""


ARGUMENTS = argument_table(f"""
model MODEL  a model folder, a file of picks, or a picker ({page("pickers")})
records [RECORDS...]  {RECORDS_HELP}
--worst N=10  with RECORDS: problems to show
--json [FILE]  with RECORDS: all metrics {AS_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Prints the tables and writes the files, or prints the card. Raises HarnessError."""
    if Path(args.model).suffix == ".parquet" or measurements_folder(Path(args.model)).is_dir():
        raise ModelError(f"{args.model} is no model: first the MODEL, then its RECORDS")
    if not args.records:
        print(model_card(folder_of_model(args.model)), end="")
        return 0
    records = load_records(args.records)
    problems, name, picker = problems_of(records), Path(args.model).name, picker_for(args.model, records)
    folder = next(iter(picker.folders.values()), None)
    trained = None if folder is None else TrainingRange.of(folder)
    rankings, origin = rank_recorded(picker, records)
    seen = overlap_with(picker, records)
    training = Training(seen.problems, seen.same_measurements, seen.known)
    evaluation = evaluate(name, records, rankings, ranked_by=origin, training=training)
    picked = evaluation.selection.dropna(subset=["pick_kernel"])
    pick_of = dict(zip(picked["problem"].astype(str), picked["pick_kernel"].astype(str), strict=True))
    beyond = extrapolating_picks(lambda problem: trained, problems, pick_of)
    report = replace(evaluation.report, extrapolating=Extrapolating(beyond.note, beyond.why))
    evaluation = replace(evaluation, report=report)
    intervals = ", ".join(f"{name} {value}" for name, value in evaluation.headlines.items())
    lines = [*evaluation_lines(report, args.worst), "", f"95 % intervals: {intervals}"]
    put(args, evaluation.as_json(), lines)
    return 0


def picker_for(word: str, records: pd.DataFrame) -> Picker:
    """Returns the picker that a word names for the problems of records: a model folder, a file of picks, or
    one by name. Raises ModelError."""
    problems, archs = problems_of(records), records["arch"].dropna()
    arch = "" if archs.empty else str(archs.iloc[0])
    if (found := picker_of(word, arch, problems)) is not None:
        return found
    if word in WORDS and not Path(word).is_dir():
        raise ModelError(f"{word} is what a session chooses: pytest --oracle=RECORDS --models={word}")
    folder = folder_of_model(word)
    arch = arch or read_spec(folder).arch
    return Folders(folder.name, arch, folders=dict.fromkeys((one.kind for one in problems), folder))


def rank_recorded(picker: Picker, records: pd.DataFrame) -> tuple[pd.DataFrame, Origin]:
    """Returns the picker's rankings of the recorded kernels, as in a session that replays these records.
    Raises ModelError where it ranks none."""
    table, origin = picker.rank(problems_of(records), pool_recorded(records), records)
    if table is None:
        raise ModelError(f"{picker.name}: {origin.detail}")
    return table, origin


def overlap_with(picker: Picker, records: pd.DataFrame) -> Overlap:
    """Returns the problems of the records that a picker was trained on."""
    if not picker.folders:
        return Overlap(known=picker.known)
    return overlap(set(picker.folders.values()), records, set(records["problem"].astype(str).unique()))


def training_lines(pickers: Sequence[Picker], records: pd.DataFrame) -> list[str]:
    """For each model folder, whether it was trained on problems of the records."""
    lines = []
    for picker in (one for one in pickers if one.folders):
        found = overlap_with(picker, records)
        if found.problems:
            same = found.same_measurements
            by = f" ({same:,} of them by these very measurements)" if same else ""
            lines.append(
                f"in-sample: {picker.name} was trained on {len(found.problems):,} of the "
                f"{records['problem'].nunique():,} problems{by}: its metrics on them do not predict those on "
                "new ones"
            )
        elif not found.known:
            lines.append(f"{picker.name} does not record its training problems: it may be in-sample")
    return lines
