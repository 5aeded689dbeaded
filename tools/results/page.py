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
direction, next to the published results.

`{COMMAND}` makes this page from the models' folders.

Efficiency in percent: TFLOPS of the pick / TFLOPS of the problem's fastest kernel ([gate.md](gate.md)).
Numbers in [ ] are 95 % bootstrap intervals over the problems. *Top 3*: the best of the model's first three
picks."""

_NOT_COMPARABLE = """\
## What is not comparable

- The published results cover 300 validation problems. Rows that name the public measurements cover 119 of
  them, those with one group, and a smaller pool. There, kernels with partly unwritten output count as ok.
- The published forward model was trained on measurements that are not public.
- Cross-validation by family holds out all batch and image sizes of a layer together.
- The published features were made for one library's kernel names, so the rows `recipe published` of other
  hardware may understate that recipe.
- A higher efficiency on another pool or device does not make a model better."""


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
        parts += map(_details, own)
    others = [one for one in models if one.spec.direction not in DIRECTIONS]
    if others:
        parts.append("## Other operations")
        parts.append(_table(_HEAD, [row for one in others for row in _model_rows(one)]))
    parts += _by_kind(models)
    parts.append(_NOT_COMPARABLE)
    return "\n\n".join(parts) + "\n"


_HEAD = ("model", "trained on", "problems", "judged on", "mean", "median", "P10", "top-1", "top 3")


def _headline_table(direction: str, own: Sequence[Shipped]) -> str:
    known = PUBLISHED[direction]
    published = (
        f"published ({SOURCE}), {HARDWARE}",
        f"{known.measurements:,}",
        f"{known.problems:,}",
        "300 unseen problems" + (f"; {known.note}" if known.note else ""),
        f"{known.mean:g}",
        f"{known.median:g}",
        f"{known.p10:g}",
        _plain(known.top_1),
        "",
    )
    return _table(_HEAD, [published, *(row for one in own for row in _model_rows(one))])


def _model_rows(one: Shipped) -> list[tuple[str, ...]]:
    return [*_study_rows(one), *_validation_rows(one), *_baseline_rows(one)]


def _study_rows(one: Shipped) -> list[tuple[str, ...]]:
    study = one.study or {}
    rows: list[tuple[str, ...]] = []
    for row in study.get("rows", ()):
        training = study["training"]
        if row["kind"] == "model":
            name = code(one.folder.name)
        elif row["kind"] == "recipe":
            name = f"recipe {code(row['name'])}, {_hardware(one)}"
        else:
            name = f"{text(row['name'])}, {_hardware(one)}"
        rows.append(
            (
                name,
                _trained_on(one, row["kind"], training["measurements"]),
                f"{training['problems']:,}" if row["kind"] != "picks" else "",
                f"{row['problems']:,} of {text(study['test']['source'])}",
                *(_figure(figure, row["headlines"][figure]) for figure in ("mean", "median", "P10")),
                _plain(row["top_1_percent"]),
                f"{row['measure_top']['top_3']['value']:.2f}",
            )
        )
    return rows


def _validation_rows(one: Shipped) -> list[tuple[str, ...]]:
    """Return the cross-validation by family of the shipped model's recipe over all of its training data."""
    metrics = one.metrics.get("by_family")
    if not isinstance(metrics, Mapping):
        return []
    return [
        (
            code(one.folder.name),
            _with_auxiliary(one, one.manifest.get("valid_rows", 0)),
            f"{metrics['covered']:,}",
            f"the same, {metrics['n_splits']} folds by family",
            f"{metrics['mean_percent']:.2f}",
            f"{metrics['median_percent']:.2f}",
            f"{metrics['p10_percent']:.2f}",
            _plain(metrics["top_1_percent"]),
            f"{metrics['measure_top_percent'][2]:.2f}",
        )
    ]


def _baseline_rows(one: Shipped) -> list[tuple[str, ...]]:
    """Return the efficiencies of the accepted baselines, except those of the cross-validation itself."""
    rows: list[tuple[str, ...]] = []
    for baseline in one.baselines:
        percent = np.array([100.0 * e for e in baseline.efficiencies.values() if e is not None])
        if baseline.model_kind == "out_of_fold" or not len(percent):
            continue
        mean, median, p10 = (interval(percent, s) for s in (mean_of, quantile_of(0.5), quantile_of(0.1)))
        rows.append(
            (
                code(one.folder.name),
                _with_auxiliary(one, one.manifest.get("valid_rows", 0)),
                f"{one.manifest.get('unique_shapes', 0):,}",
                f"{len(percent):,} of {text(baseline.problem_set)}",
                f"{mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]",
                f"{median.value:.2f}",
                f"{p10.value:.2f} [{p10.low:.2f}, {p10.high:.2f}]",
                "",
                "",
            )
        )
    return rows


def _judged_row(one: Shipped) -> Mapping[str, Any] | None:
    """Return the study's row of the shipped model.

    It is that of its recipe where the model was trained on the test problems.
    """
    judged = [row for row in (one.study or {}).get("rows", ()) if row["kind"] != "picks"]
    return next((row for row in judged if row["kind"] == "model"), next(iter(judged), None))


def _details(one: Shipped) -> str:
    """Return a paragraph on what a model was judged by."""
    name, study, row = code(one.folder.name), one.study, _judged_row(one)
    if study is None:
        return f"{name}: this model has no study.json; `python -m tools.study` makes one."
    if row is None:
        return f"{name}: there are no measurements of problems that the recipe was not trained on."
    ceiling = row["ceiling"]
    parts = [
        f"{name}: judged on {row['problems']:,} problems of {text(study['test']['source'])}, where noise "
        f"limits the mean to {ceiling['mean']:.2f} and the P10 to {ceiling['P10']:.2f} (estimated)."
    ]
    there = {part["slice"] for part in row["slices"]}
    kinds = {"more than one group": {"grouped", "depthwise"}, "three dimensions": {"3D"}}
    absent = [kind for kind, names in kinds.items() if not names & there]
    if absent:
        parts.append(f"Not measured: problems with {' or '.join(absent)}.")
    if "verification" in study:
        parts.append(_verification(study["verification"]))
    return " ".join(parts)


def _by_kind(models: Sequence[Shipped]) -> list[str]:
    """Return the table of the judged models' means and P10s for each kind of problem."""
    judged = {code(one.folder.name): row for one in models if (row := _judged_row(one)) is not None}
    found = {name: {part["slice"]: part for part in row["slices"]} for name, row in judged.items()}
    rows = [
        (text(kind), *(_short(parts.get(kind)) for parts in found.values()))
        for kind in dict.fromkeys(kind for parts in found.values() for kind in parts)
    ]
    return ["## By kind of problem", "Mean, P10.", _table(("kind", *found), rows)] if rows else []


def _short(part: Mapping[str, Any] | None) -> str:
    return f"{part['mean']:.2f}, {part['P10']:.2f}" if part else ""


def _verification(found: Mapping[str, Any]) -> str:
    pairs = ", ".join(f"{number:,} {status}" for status, number in found["pairs"].items())
    lines = [f"Pairs by status: {pairs}."]
    if found["timed_without_check"]:
        lines.append(
            f"{found['timed_without_check']:,} measured pairs left more than 2 % of their output unwritten. "
            f"On {found['unverified_oracles']:,} of {found['problems']:,} problems such a kernel is the "
            "fastest."
        )
    elif found["problems_with_a_wrong_kernel"]:
        lines.append(
            f"On {found['problems_with_a_wrong_kernel']:,} of {found['problems']:,} problems at least "
            "one kernel gave a wrong result."
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


def _figure(name: str, value: Mapping[str, Any]) -> str:
    """Return a figure, with its interval but for the median."""
    shown = f"{value['value']:.2f}"
    return shown if name == "median" else f"{shown} [{value['low']:.2f}, {value['high']:.2f}]"


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
