"""Makes docs/results.md, the metrics of the shipped models, from the models' folders.

The inputs are JSON files in models/: study.json (`python -m tools.study`), cross-validation metrics and
baselines. It reads no measurements and trains nothing, so the page is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tile_oracle.evaluation.study import read_study
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.baseline_file import load_baseline
from tile_oracle.judge.bootstrap import interval, mean_of, quantile_of
from tile_oracle.model.model_folder import ModelSpec, read_spec
from tile_oracle.model.store import (
    baseline_files,
    metrics_file,
    model_folders,
    read_json,
    read_manifest,
)
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.pages.tables import code, text
from tools.results.published import HARDWARE, PUBLISHED, SOURCE

COMMAND = "python -m tools.results -o docs/results.md"

_INTRODUCTION = f"""\
# Results

For everyone who wants to know how well the shipped models pick. This page shows their efficiency, by
direction, next to the published results. What has no row was not measured.

`{COMMAND}` makes this page from the models' folders: study.json (written by
`tile-oracle ship` and `python -m tools.study`), cross-validation metrics and baselines. A test compares the
page with the command's output.

Efficiency in percent: TFLOPS of the pick / TFLOPS of the problem's fastest kernel ([gate.md](gate.md)).
Numbers in [ ] are 95 % bootstrap intervals over the problems. *Top 3 measured*: the best of the model's first
three picks."""

_NOT_COMPARABLE = """\
## What is not comparable

- The published results cover 300 crawled validation problems. The public files have measurements of 231 of
  them: those with one group. Rows here that name the public measurements cover 119 of these.
- The published forward model was trained on 48,845 measurements that are not public. Models trained here on
  public data see at most a sixth of that, and their pool has 20 to 30 kernel names, some of which are aliases
  of one kernel.
- The public files count a kernel whose output was partly unwritten as ok. The rows made from them here do the
  same, because leaving such kernels out would change the oracle behind the published results. Each model
  states how many there are. Our own measurements count verified kernels only.
- Cross-validation holds out problems of the training data, not a validation set. By family it holds out all
  batch and image sizes of a layer together. By problem it does not, which is optimistic.
- The published features were made for one library's kernel names and read the first number as a block size.
  They describe the kernels here less precisely than they could, so the rows `recipe published` of other
  hardware may understate that recipe.
- Efficiency is relative to the pool and the device: a higher efficiency on another pool or device does not
  make a model better."""


@dataclass(frozen=True)
class Shipped:
    """What the page uses of a model's folder. study: None without a study.json."""

    folder: Path
    spec: ModelSpec
    manifest: Mapping[str, Any]
    study: Mapping[str, Any] | None
    metrics: Mapping[str, Any]
    baselines: tuple[Baseline, ...]


def read_shipped(models: Path) -> list[Shipped]:
    """Reads every model below a folder, sorted by name. Raises ModelError, GateError for damaged files."""
    found = []
    for folder in model_folders(models):
        spec = read_spec(folder)
        metrics = next(
            (path for name in spec.targets if (path := folder / metrics_file(name)).is_file()), None
        )
        baselines = [load_baseline(path) for path in baseline_files(folder)]
        found.append(
            Shipped(
                folder,
                spec,
                read_manifest(folder),
                read_study(folder),
                read_json(metrics) if metrics is not None else {},
                tuple(one for one in baselines if one is not None),
            )
        )
    return found


def results_page(models: Sequence[Shipped]) -> str:
    """Returns the page as Markdown, ending in a line break."""
    parts = [_INTRODUCTION]
    for direction in DIRECTIONS:
        own = [one for one in models if one.spec.direction == direction]
        parts.append(f"## {direction}")
        parts.append(_headline_table(direction, own))
        if not own:
            parts.append("No model of this direction is shipped: nothing was measured yet.")
        for one in own:
            parts += _details(one)
    others = [one for one in models if one.spec.direction not in DIRECTIONS]
    if others:
        parts.append("## Other operations")
        parts.append(_table(_HEAD, [row for one in others for row in _model_rows(one)]))
    parts.append(_NOT_COMPARABLE)
    return "\n\n".join(parts) + "\n"


_HEAD = (
    "model",
    "hardware",
    "trained on: measurements",
    "problems",
    "judged on",
    "mean",
    "median",
    "P10",
    "top-1",
    "top-5",
    "top 3 measured",
)


def _headline_table(direction: str, own: Sequence[Shipped]) -> str:
    known = PUBLISHED[direction]
    published = (
        f"published ({SOURCE})",
        HARDWARE,
        f"{known.measurements:,}",
        f"{known.problems:,}",
        "300 unseen problems" + (f"; {known.note}" if known.note else ""),
        f"{known.mean:g}",
        f"{known.median:g}",
        f"{known.p10:g}",
        _plain(known.top_1),
        _plain(known.top_5),
        "-",
    )
    return _table(_HEAD, [published, *(row for one in own for row in _model_rows(one))])


def _model_rows(one: Shipped) -> list[tuple[str, ...]]:
    return [*_study_rows(one), *_validation_rows(one), *_baseline_rows(one)]


def _study_rows(one: Shipped) -> list[tuple[str, ...]]:
    study = one.study or {}
    rows: list[tuple[str, ...]] = []
    for row in study.get("rows", ()):
        training = study["training"]
        own = row["kind"] != "picks"
        name = f"recipe {code(row['name'])}" if row["kind"] == "recipe" else text(row["name"])
        rows.append(
            (
                name,
                _hardware(one),
                _trained_on(one, row["kind"], training["measurements"]),
                f"{training['problems']:,}" if own else "",
                f"{row['problems']:,} other problems ({text(study['test']['source'])})",
                *(_interval(row["headlines"][figure]) for figure in ("mean", "median", "P10")),
                _plain(row["top_1_percent"]),
                _plain(row["top_5_percent"]),
                _interval(row["measure_top"]["top_3"]),
            )
        )
    return rows


def _validation_rows(one: Shipped) -> list[tuple[str, ...]]:
    """Cross-validation of the shipped model's recipe over all of its training data."""
    rows: list[tuple[str, ...]] = []
    for key, metrics in one.metrics.items():
        if not isinstance(metrics, Mapping):
            continue
        rows.append(
            (
                f"shipped: {code(one.folder.name)}",
                _hardware(one),
                _with_auxiliary(one, one.manifest.get("valid_rows", 0)),
                f"{metrics['covered']:,}",
                f"the same, {metrics['n_splits']}-fold cross-validation {key.replace('_', ' ')}",
                f"{metrics['mean_percent']:.2f}",
                f"{metrics['median_percent']:.2f}",
                f"{metrics['p10_percent']:.2f}",
                _plain(metrics["top_1_percent"]),
                _plain(metrics["top_5_percent"]),
                f"{metrics['measure_top_percent'][2]:.2f}",
            )
        )
    return rows


def _baseline_rows(one: Shipped) -> list[tuple[str, ...]]:
    """Efficiencies of the accepted baselines, except those that come from the cross-validation itself."""
    rows: list[tuple[str, ...]] = []
    for baseline in one.baselines:
        if baseline.model_kind == "out_of_fold":
            continue
        percent = np.array([100.0 * e for e in baseline.efficiencies.values() if e is not None])
        if not len(percent):
            continue
        figures = [interval(percent, s) for s in (mean_of, quantile_of(0.5), quantile_of(0.1))]
        rows.append(
            (
                f"shipped: {code(one.folder.name)}",
                text(f"{baseline.arch} ({baseline.device})"),
                _with_auxiliary(one, one.manifest.get("valid_rows", 0)),
                f"{one.manifest.get('unique_shapes', 0):,}",
                f"{len(percent):,} problems of {text(baseline.problem_set)} x {text(baseline.kernel_set)} "
                f"(the baseline of {text(baseline.created[:10])})",
                *(f"{figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}]" for figure in figures),
                "-",
                "-",
                "-",
            )
        )
    return rows


def _details(one: Shipped) -> list[str]:
    study = one.study
    heading = f"### {text(one.folder.name)}"
    if study is None:
        return [heading, "This model has no study.json: `python -m tools.study` makes one."]
    parts = [heading]
    judged = [row for row in study["rows"] if row["kind"] != "picks"]
    if judged:
        parts += _judged(study, judged)
    else:
        parts.append("There are no measurements of problems that the recipe was not trained on.")
    return parts


def _judged(study: Mapping[str, Any], judged: Sequence[Mapping[str, Any]]) -> list[str]:
    # The shipped model itself, where it was not trained on the test problems.
    first = next((row for row in judged if row["kind"] == "model"), judged[0])
    ceiling = first["ceiling"]
    name = f"recipe {code(first['name'])}" if first["kind"] == "recipe" else text(first["name"])
    parts = [
        f"Evaluated on {first['problems']:,} problems ({text(study['test']['source'])}) that are not in the "
        f"training data ({text(study['training']['source'])}). Given the noise of single measurements, "
        f"always picking the truly fastest kernel would reach a mean of {ceiling['mean']:.2f} and a P10 of "
        f"{ceiling['P10']:.2f} (estimated).",
        "Measuring the first k picks, mean efficiency:",
    ]
    tops = [f"top_{k}" for k in (1, 2, 3, 5, 10)]
    parts.append(
        _table(
            ("picks by", *(f"k = {top.removeprefix('top_')}" for top in tops)),
            [
                (
                    f"recipe {code(row['name'])}" if row["kind"] == "recipe" else text(row["name"]),
                    *(_interval(row["measure_top"][top]) for top in tops),
                )
                for row in study["rows"]
            ],
        )
    )
    parts.append(f"By kind of problem, {name}:")
    slices = [
        (text(part["slice"]), f"{part['problems']:,}", *(f"{part[f]:.2f}" for f in ("mean", "P10", "min")))
        for part in first["slices"]
    ]
    parts.append(_table(("slice", "problems", "mean", "P10", "min"), slices))
    there = {part["slice"] for part in first["slices"]}
    kinds = {"more than one group": {"grouped", "depthwise"}, "three dimensions": {"3D"}}
    absent = [kind for kind, names in kinds.items() if not names & there]
    if absent:
        parts.append(f"Not measured: problems with {' or '.join(absent)}.")
    if "verification" in study:
        parts.append(_verification(study["verification"]))
    return parts


def _verification(found: Mapping[str, Any]) -> str:
    pairs = ", ".join(f"{number:,} {status}" for status, number in found["pairs"].items())
    lines = [f"Pairs by status: {pairs}."]
    if found["timed_without_check"]:
        lines.append(
            f"{found['timed_without_check']:,} measured pairs left more than 2 % of their output unwritten. "
            f"On {found['unverified_oracles']:,} of {found['problems']:,} problems such a kernel is the "
            "fastest: there, an oracle that does not check outputs is a kernel that was not shown to be "
            "correct."
        )
    elif found["problems_with_a_wrong_kernel"]:
        lines.append(
            f"On {found['problems_with_a_wrong_kernel']:,} of {found['problems']:,} problems at least "
            "one kernel gave a wrong result. Whether one of them would have been the oracle is not known, "
            "because wrong kernels are not timed."
        )
    if found["problems_without_oracle"]:
        lines.append(f"{found['problems_without_oracle']:,} problems have no verified kernel at all.")
    return " ".join(lines)


def _trained_on(one: Shipped, kind: str, measurements: int) -> str:
    """Training measurements of a row of the study. Compared recipes are trained on its direction only."""
    if kind == "picks":
        return "as published"
    return _with_auxiliary(one, measurements) if kind == "model" else f"{measurements:,}"


def _with_auxiliary(one: Shipped, measurements: int) -> str:
    taught_by = one.manifest.get("taught_by", {})
    others, kinds = (
        sum(taught_by.values()),
        "directions" if set(taught_by) <= set(DIRECTIONS) else "data types",
    )
    return f"{measurements:,}" + (f" and {others:,} of other {kinds}" if others else "")


def _hardware(one: Shipped) -> str:
    device = str((one.study or {}).get("device") or "")
    named = f"{one.spec.arch} ({device})" if device and device != one.spec.arch else one.spec.arch
    return text(named)


def _interval(value: Mapping[str, Any]) -> str:
    return f"{value['value']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
