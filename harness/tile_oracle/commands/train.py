"""`tile-oracle model train`: records -> a model folder.

Trains a model on the ok measurements of runs (folders or parquet files), cross-validates it by problem and
by family, and writes a model folder: models, feature_spec.json, train_manifest.json, cv_metrics_*.json,
feature_importances_*.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from tile_oracle.commands.arguments import ONLY_JSON, RECORDS_HELP, progress_stream, show
from tile_oracle.commands.merge import write_oracle
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.model_card import write_card
from tile_oracle.features.code_table import CodeTable
from tile_oracle.files.vouched_files import vouch_for
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.store import OTHER_BUILDS_FILE, TRAINING_FILE, folder_of_model, refuse_other_folder
from tile_oracle.problem_set import ProblemSet, load_problem_set
from tile_oracle.record.dataset import load_records, read_rows
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.merge import merge_records, oracle_records, records_to_learn_from
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.documentation import page
from tile_oracle.terminal.text_table import text_table
from tile_oracle.training.fit import Effort
from tile_oracle.training.recipe import RECIPES, SUITED
from tile_oracle.training.train import TrainedModel, train
from tile_oracle.training.training_rows import not_of_shapes

if TYPE_CHECKING:
    from tile_oracle.training.adapt import Shifts


EXAMPLES = f"""\
recipes:
{chr(10).join(f"  {one.name:<18} {one.meaning}" for one in RECIPES.values())}

examples:
  tile-oracle model train reports/my_run -o models/mine   the recipe that suits the records
  tile-oracle model train fwd.parquet -o models/j --recipe launch --also bwd.parquet   auxiliary training data
  tile-oracle model train few.parquet -o models/a --adapt models/mine   corrects a model for another compiler
  tile-oracle model train reports/a reports/b --problem-set forward_smoke -o models/mine   a model to ship
  tile-oracle model train OLD/training.parquet SET.parquet --problem-set SET --warm-start OLD --also X -o NEW
                                         grows a shipped model by measurements of another compiler or device

Recipes that read metrics of binaries store them in the folder: see {page("heuristic")}.
"""


ARGUMENTS = argument_table(
    f"""
records RECORDS...  {RECORDS_HELP}
-o --out FOLDER!  the model folder to write
--arch ARCH  train on the rows of this architecture (default: the only one)
--direction DIRECTION  forward, bwd_data or bwd_weight (default: the only one)
--dtype DTYPE  bf16, fp16, ... (default: the only one)
--recipe RECIPE  features, target and training settings (default: {SUITED})
--folds N=5  cross-validation folds
--seed N=0  same records and seed: same model bytes
--threads N=1  threads of LightGBM
--also RECORDS*  records of other directions (without directions: of another data type of the same size), or
    of another compiler or device, as auxiliary training data (may be repeated): kernels of one family behave
    alike. The model is not judged by them; rows of held-out shapes are left out
--warm-start MODEL  grow further trees on every target of an existing model; its networks go on learning
--adapt MODEL  train no trees: correct an existing model by these records, of another compiler, device or
    driver, with a shift of every kernel's score; without --recipe, --also or --warm-start
--build-dir DIR  with --adapt: prebuilt kernels (`tile-oracle build`); metrics of their binaries correct
    kernels that the records have not measured
--warm-trees N=200  with --warm-start: trees to add to each booster
--quiet  no progress, only the summary
--json  print the summary {ONLY_JSON}
a model to ship, which `pytest --target replay` can gate:
--problem-set SET  hold these problems out: the model is judged on them and not trained on them. The folder
    also gets training.parquet, the oracle of the problems, and a replayed session's baseline;
    without --arch, --direction, --dtype, --adapt, --build-dir, --quiet or --json
--kernel-set RULES  with --problem-set: the pool (default: as the runs recorded it)
--device NAME  with --problem-set: only the records of this device
--in-sample  with --problem-set: also train on its problems, for lack of other records. The verdict then does
    not measure how well the model does on new problems
""",
    recipe=sorted(RECIPES),
)


def run(args: argparse.Namespace) -> int:
    """Trains, writes the folder, prints the summary. Raises RecordError, ModelError, RuleError."""
    started = time.monotonic()
    if args.threads < 1 or args.folds < 2:
        raise ModelError("--threads must be at least 1 and --folds at least 2")
    refuse_other_folder(args.out)  # before the training, which may take hours
    if args.problem_set:
        return _ship(args)
    records = load_records(args.records)
    if args.adapt:
        return _adapt(args, records)
    say = partial(print, file=progress_stream(args), flush=True)
    effort = Effort(args.seed, args.threads, None if args.quiet else say)
    model = train(
        records,
        recipe=args.recipe,
        arch=args.arch,
        direction=args.direction,
        dtype=args.dtype,
        n_splits=args.folds,
        effort=effort,
        warm_start=args.warm_start and folder_of_model(args.warm_start),
        warm_trees=args.warm_trees,
        sources=tuple(path.name for path in args.records),
        also=load_records(args.also) if args.also else None,
    )
    model.save(args.out)
    seconds = time.monotonic() - started
    return show(args, _document(model, args.out, seconds), [_summary(model, args.out, seconds)])


def _adapt(args: argparse.Namespace, records: pd.DataFrame) -> int:
    from tile_oracle.model.predictor import Predictor
    from tile_oracle.training.adapt import adapted, remembered, save_adapted

    folder, binaries = folder_of_model(args.adapt), None
    if args.build_dir:
        binaries = CodeTable.of_build(args.build_dir, remembered(Predictor.load(folder)).facts)
    predictor, shifts = adapted(folder, records, args.threads, binaries)
    save_adapted(predictor, shifts, records, args.out)
    document, written = (
        {"folder": args.out, "adapted": args.adapt, "shifts": shifts},
        f"written to {args.out}",
    )
    if not shifts.share:
        stays = f"no gain: {args.adapt} stays as it is ({_gain(shifts, args.adapt)})"
        return show(args, document, [stays, written])
    words = ", ".join(f"{name} {100 * value:.1f} %" for name, value in shifts.deviation.items())
    half = f"\nhalf the matrix instructions in a main loop: {100 * (2**-shifts.loop - 1):+.0f} % time"
    loop = half if shifts.loop else ""
    said = (
        f"{args.adapt}, corrected by {shifts.measurements:,} measurements of {shifts.problems:,} problems: "
        f"{_gain(shifts, args.adapt)}; {100 * shifts.share:.0f} % of the correction is kept"
    )
    return show(args, document, [said, f"standard deviations: {words}{loop}", written])


def _gain(shifts: Shifts, model: str) -> str:
    """Returns what the correction gains in cross-validation, in words."""
    gain = shifts.gain
    if gain is None or gain.points is None:
        return (
            f"the model's own pick was measured for {gain.judged if gain else 0} problems, too few to judge "
            f"a correction; `tile-oracle runs suggest RECORDS --model {model} --adapt` chooses pairs that do"
        )
    return (
        f"the picks' efficiency by {gain.points:+.1f} points, 90 %: {gain.low:+.1f} to {gain.high:+.1f}, "
        f"cross-validated on {gain.judged:,} problems"
    )


def _document(model: TrainedModel, out: Path, seconds: float) -> dict[str, object]:
    """Returns the summary as JSON."""
    return {
        "folder": out,
        "recipe": model.spec.recipe,
        "arch": model.spec.arch,
        "seconds": seconds,
        "cross_validation": [
            {"folds": one.n_splits, "grouping": one.grouping, **asdict(one.efficiency)}
            for one in model.checks
        ],
        "unchecked": model.unchecked if not model.checks else None,
        "manifest": model.manifest,
    }


def _summary(model: TrainedModel, out: Path, seconds: float) -> str:
    spec, manifest, aliases = model.spec, model.manifest, model.ranker.aliases
    kind = " ".join(filter(None, (spec.op_type, spec.direction, spec.dtype)))
    rows, problems = (count(manifest[name], noun) for name, noun in _COUNTED)
    lines = ["", f"{kind} on {spec.arch}, recipe {spec.recipe}: {rows}, {problems}", ""]
    table = [("cross-validation", "problems", "mean %", "median %", "P10 %", "min %", "top-1 %")]
    for check in model.checks:
        found = check.efficiency
        values = (found.mean_percent, found.median_percent, found.p10_percent, found.min_percent)
        mean, median, p10, least, top = (f"{value or 0.0:.2f}" for value in (*values, found.top_1_percent))
        folds = f"{check.n_splits} folds by {check.grouping}"
        table.append((folds, str(found.covered), mean, median, p10, least, top))
    lines += text_table(table, range(1, len(table[0])))
    lines += [] if model.checks else [model.unchecked]
    for stands, names in aliases.groups().items():
        others = ", ".join(_short(name) for name in names if name != stands)
        lines.append(f"one kernel: {_short(stands)} = {others} ({aliases.because[stands]})")
    lines += [f"left out: {count(n, 'row')} {why}" for why, n in sorted(manifest["left_out"].items())]
    return "\n".join([*lines, "", f"written to {out} in {seconds:.1f} s"])


_COUNTED = (("valid_rows", "row"), ("unique_shapes", "problem"))
"""Numbers of the manifest, and of what they are."""


def _short(name: str) -> str:
    return parse_kernel_name(name).short_name


_say = partial(print, flush=True)


def _ship(args: argparse.Namespace) -> int:
    """Writes a folder with everything that a replayed session gates, and prints its metrics. Raises
    HarnessError."""
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
