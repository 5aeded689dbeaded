"""`tile-oracle model evaluate`: how well a model picks, on recorded measurements."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tile_oracle.commands.arguments import RECORDS, argument, flag, json_file
from tile_oracle.commands.json_output import STDOUT, put_json
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.evaluate import Evaluation, evaluate
from tile_oracle.evaluation.folder_model import FolderModel, pool_recorded, rank_recorded
from tile_oracle.evaluation.picks_file import read_picks, read_picks_file
from tile_oracle.files.output_place import refuse_unwritable
from tile_oracle.judge.model import FOLDER, PICKS, Origin
from tile_oracle.model.store import folder_of_model
from tile_oracle.pickers.chosen import Chosen
from tile_oracle.pickers.installed import file_of, picker_names, picker_of
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import problems_of
from tile_oracle.report.data import Extrapolating, Training
from tile_oracle.report.terminal import evaluation_lines
from tile_oracle.training.extrapolation import abstaining, extrapolating_picks, problems_outside
from tile_oracle.training.trained_on import Overlap, overlap
from tile_oracle.training.training_range import TrainingRange

EXAMPLES = """\
examples:
  tile-oracle model evaluate models/mine measured.parquet
  tile-oracle model evaluate models/mine measured.parquet --json figures.json
  tile-oracle model evaluate picks.csv measured.parquet          a published file of picks in place of a model

The figures are those of a session that replays the records; in [ ] are 95 % bootstrap intervals over the
problems. R2 and RMSE are over all pairs, the rank correlation is within problems: of everything derived
from the pick's prediction, and of the target of each member of the model.
"""


ABOUT = "Ranks the measured kernels of every recorded problem and compares picks with oracles."
ARGUMENTS = (
    argument("model", "MODEL", "a model folder, a file of picks, or a picker (docs/pickers.md)"),
    RECORDS,
    flag("--abstain", "the model picks nothing for problems outside of what it was trained on"),
    argument("--worst", "N", "problems to show", type=int, default=10),
    json_file("all metrics"),
    argument("--parquet", "FILE", "write one row per problem as parquet"),
)


def run(args: argparse.Namespace) -> int:
    """Prints the tables and writes the files. Raises RecordError, ModelError."""
    if Path(args.model).suffix == ".parquet":
        raise ModelError(f"{args.model} is no model: first the MODEL, then its RECORDS")
    records = load_records(args.records)
    problems, name = problems_of(records), Path(args.model).name
    chosen = _chosen(args.model, records)
    is_folder = chosen is None and file_of(args.model) is None
    folder = folder_of_model(args.model) if is_folder else None
    trained = None if folder is None else TrainingRange.of(folder)
    if args.abstain and trained is None:
        raise ModelError(f"--abstain needs a model folder that names its training problems, not {name}")
    refuse_unwritable(ModelError, args.json, args.parquet)
    abstained = problems_outside(lambda problem: trained, problems) if args.abstain else {}
    if chosen is not None:
        evaluation = evaluate(name, records, chosen[0], ranked_by=chosen[1])
    elif folder is None:
        picks = read_picks_file(args.model, problems)
        evaluation = evaluate(name, records, picks.rankings, ranked_by=Origin(PICKS, name, picks.note))
    else:
        model = FolderModel.judged_by(folder, records)
        rankings = abstaining(rank_recorded(model, records), abstained)
        origin = Origin(FOLDER, name, order_only=model.orders_only)
        seen = overlaps([args.model], records)[args.model]
        training = Training(seen.problems, seen.same_measurements, seen.known)
        evaluation = evaluate(name, records, rankings, model.predictor, ranked_by=origin, training=training)
    picked = evaluation.selection.dropna(subset=["pick_kernel"])
    pick_of = dict(zip(picked["problem"].astype(str), picked["pick_kernel"].astype(str), strict=True))
    beyond = extrapolating_picks(lambda problem: trained, problems, pick_of)
    left_out = {problem: "; ".join(reasons) for problem, reasons in abstained.items()}
    report = replace(evaluation.report, extrapolating=Extrapolating(beyond.note, beyond.why, left_out))
    evaluation = replace(evaluation, report=report)
    if args.json != STDOUT:
        print("\n".join([*evaluation_lines(report, args.worst), "", *_accuracy(evaluation)]))
    put_json(args.json, evaluation.as_json())
    try:
        if args.parquet:
            evaluation.selection.to_parquet(args.parquet, index=False)
    except OSError as error:
        raise ModelError(f"cannot write {error.filename}: {error.strerror}") from None
    return 0


def rankings_of(model: str, records: pd.DataFrame) -> pd.DataFrame:
    """Predictions of a model folder for the records, the picks of a CSV file, or the choices of a picker."""
    if (chosen := _chosen(model, records)) is not None:
        return chosen[0]
    if file_of(model) is not None:
        return read_picks(model, problems_of(records))
    return rank_recorded(FolderModel.judged_by(folder_of_model(model), records), records)


def _chosen(model: str, records: pd.DataFrame) -> tuple[pd.DataFrame, Origin] | None:
    """The choices of a picker, and where they come from; None for what is none. Raises ModelError."""
    archs = records["arch"].dropna()
    picker = None if archs.empty else picker_of(model, str(archs.iloc[0]))
    if picker is None:
        return None
    judge = Chosen(picker, records, str(archs.iloc[0]))
    table, origin = judge.rank(problems_of(records), pool_recorded(records))
    if table is None:
        raise ModelError(origin.detail)
    return table, origin


def overlaps(models: Sequence[str], records: pd.DataFrame) -> dict[str, Overlap]:
    """Model folder -> the problems of the records that it was trained on; other pickers have none."""
    problems = set(records["problem"].astype(str).unique())
    folders = [one for one in models if file_of(one) is None and one not in picker_names()]
    return {model: overlap([folder_of_model(model)], records, problems) for model in folders}


def training_lines(models: Sequence[str], records: pd.DataFrame) -> list[str]:
    """For each model folder, whether it was trained on problems of the records."""
    lines = []
    problems = set(records["problem"].astype(str).unique())
    for model, found in overlaps(models, records).items():
        if found.problems:
            same = found.same_measurements
            by = f" ({same:,} of them by these very measurements)" if same else ""
            lines.append(
                f"in-sample: {Path(model).name} was trained on {len(found.problems):,} of the "
                f"{len(problems):,} problems{by}: its metrics on them do not predict those on new ones"
            )
        elif not found.known:
            lines.append(f"{Path(model).name} does not record its training problems: it may be in-sample")
    return lines


def _accuracy(evaluation: Evaluation) -> list[str]:
    """Intervals of the efficiencies, then R2 and RMSE of every prediction."""
    intervals = ", ".join(f"{name} {value}" for name, value in evaluation.headlines.items())
    lines = [f"95 % intervals: {intervals}"]
    if not evaluation.targets:
        return lines
    lines.append("")
    lines += [f"{'prediction':<16}{'of':<16}{'pairs':>8}{'R2':>9}{'RMSE':>11}  {'':<10}{'rank corr.':>10}"]
    for one in evaluation.targets:
        r2, rmse, correlation = (
            "-" if value is None else f"{value:.{digits}}" if value > -100 else f"{value:.1e}"
            for value, digits in ((one.r2, "3f"), (one.rmse, "4g"), (one.rank_correlation, "3f"))
        )
        lines.append(
            f"{one.quantity:<16}{one.of:<16}{one.pairs:>8}{r2:>9}{rmse:>11}  {one.unit:<10}{correlation:>10}"
        )
    return lines
