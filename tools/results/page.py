"""docs/results.md: what the shipped models reach, made from their folders alone.

Everything comes from JSON files in models/: study.json (`python -m tools.study`), cross-validation metrics
and baselines. No measurement is read and nothing is trained, so the page is the same wherever it is made.
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
from tile_oracle.operation.grouped_conv.problem import DIRECTIONS
from tile_oracle.report.markdown import code, text
from tools.results.published import HARDWARE, PUBLISHED, SOURCE

COMMAND = "python -m tools.results -o docs/results.md"

_INTRODUCTION = f"""\
# Results

How well the models pick, by direction, beside what was published. This page is made by
`{COMMAND}` from the models' folders (study.json, which `tile-oracle ship` and
`python -m tools.study` make, cross-validation metrics, baselines); a test holds it to what the command
prints. What has no row was not measured.

Efficiency in percent: TFLOPS of the pick / TFLOPS of the problem's fastest kernel ([gate.md](gate.md)).
Figures in [ ] are 95 % bootstrap intervals over the problems. *Top 3 measured*: the best of the model's first
three picks."""

_NOT_COMPARABLE = """\
## What is not comparable

- The published figures are of 300 crawled validation problems, of which the public files have measurements
  of 231: those with one group. Rows here that name the public measurements are of 119 of these.
- The published forward model was trained on 48,845 measurements that are not public; what is trained here on
  public data sees at most a sixth of that, and its pool is 20 to 30 kernel names, of which some are one
  kernel.
- The public files count a kernel whose output was partly unwritten as ok, and so do the rows made from them
  here, since leaving it out would change the oracle that the published figures stand on. How many that are is
  said with each model. Our own measurements count verified kernels only.
- Cross-validation holds out problems of the training data, not a validation set; by family it holds out all
  batch and image sizes of a layer together, by problem it does not, which flatters.
- The published features were made for one library's names, of which they read the first number as a block
  size; of the kernels here they say less than they could, and so do the rows `recipe published` of other
  hardware.
- Efficiency is relative to the pool and the device: a model of one pool or device is not better than one of
  another because its figure is higher."""


@dataclass(frozen=True)
class Shipped:
    """A model's folder as the page reads it."""

    folder: Path
    spec: ModelSpec
    manifest: Mapping[str, Any]
    study: Mapping[str, Any] | None
    metrics: Mapping[str, Any]
    baselines: tuple[Baseline, ...]


def read_shipped(models: Path) -> list[Shipped]:
    """Every model below a folder, by name. Raises ModelError and GateError for files that are damaged."""
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
    """The page as Markdown, ending in a line break."""
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
    said = PUBLISHED[direction]
    published = (
        f"published ({SOURCE})",
        HARDWARE,
        f"{said.measurements:,}",
        f"{said.problems:,}",
        "300 unseen problems" + (f"; {said.note}" if said.note else ""),
        f"{said.mean:g}",
        f"{said.median:g}",
        f"{said.p10:g}",
        _plain(said.top_1),
        _plain(said.top_5),
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
    """Cross-validation of the shipped model's recipe over all that it was trained on."""
    rows: list[tuple[str, ...]] = []
    for key, metrics in one.metrics.items():
        if not isinstance(metrics, Mapping):
            continue
        rows.append(
            (
                f"shipped: {code(one.folder.name)}",
                _hardware(one),
                _learnt_from(one, one.manifest.get("valid_rows", 0)),
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
    """What the gate accepts, of baselines that are not the cross-validation's own."""
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
                _learnt_from(one, one.manifest.get("valid_rows", 0)),
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
        parts.append("No measurement of problems that the recipe was not trained on is at hand.")
    if "learning_curve" in study:
        parts += _curve(study, taught=bool(one.manifest.get("taught_by")))
    return parts


def _judged(study: Mapping[str, Any], judged: Sequence[Mapping[str, Any]]) -> list[str]:
    # The shipped model itself, where the test's problems are new to it.
    first = next((row for row in judged if row["kind"] == "model"), judged[0])
    ceiling = first["ceiling"]
    name = f"recipe {code(first['name'])}" if first["kind"] == "recipe" else text(first["name"])
    parts = [
        f"Judged on {first['problems']:,} problems ({text(study['test']['source'])}) that the training "
        f"({text(study['training']['source'])}) does not have. Given the noise of single measurements, "
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
    absent = [said for said, names in kinds.items() if not names & there]
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
            "fastest: an oracle that does not look at outputs names a kernel there that was not shown to be "
            "right."
        )
    elif found["problems_with_a_wrong_kernel"]:
        lines.append(
            f"On {found['problems_with_a_wrong_kernel']:,} of {found['problems']:,} problems at least "
            "one kernel gave a wrong result. Whether one of them would have been the oracle is not known: "
            "what is wrong is not timed."
        )
    if found["problems_without_oracle"]:
        lines.append(f"{found['problems_without_oracle']:,} problems have no verified kernel at all.")
    return " ".join(lines)


def _trained_on(one: Shipped, kind: str, measurements: int) -> str:
    """Of a row of the study: recipes that stand beside the model learn from its direction alone."""
    if kind == "picks":
        return "as published"
    return _learnt_from(one, measurements) if kind == "model" else f"{measurements:,}"


def _learnt_from(one: Shipped, measurements: int) -> str:
    others = sum(one.manifest.get("taught_by", {}).values())
    return f"{measurements:,}" + (f" and {others:,} of other directions" if others else "")


def _curve(study: Mapping[str, Any], *, taught: bool) -> list[str]:
    curve = study["learning_curve"]
    rows = [
        (f"{point['problems']:,}", *(_interval(point[name]) for name in ("mean", "median", "p10")))
        for point in curve["points"]
    ]
    return [
        f"Learning curve: recipe {code(curve['recipe'])} trained on some of the training problems"
        f"{', on nothing of other directions' if taught else ''}, "
        f"cross-validated by {text(curve['grouping'])} (a larger training set holds the smaller ones):",
        _table(("training problems", "mean", "median", "P10"), rows),
    ]


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
