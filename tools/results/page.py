"""Makes docs/results.md, the metrics of the shipped models, from the models' folders.

The inputs are JSON files in models/: cross-validation metrics and baselines. It reads no measurements and
trains nothing, so the page is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tile_oracle.evaluation.model_card import judging_baselines, markdown_table
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.bootstrap import interval, mean, median, p10
from tile_oracle.model.model_folder import ModelSpec, read_spec
from tile_oracle.model.store import (
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

For everyone who wants to know how well the shipped models pick. `{COMMAND}` makes this
page from the models' folders.

[Efficiencies](gate.md#from-measurements-to-efficiencies) are in percent. Numbers in [ ] are 95 % bootstrap
intervals over the problems. *Top 3*: the best of the model's first three picks. `tile-oracle model evaluate
MODEL` has the figures by kind of problem; `model evaluate MODEL ORACLE` judges again.
[Pickers side by side](pickers.md#on-286-products-of-an-h200) has other makers' on the same measurements."""

_NOT_COMPARABLE = """\
## What is not comparable

- The published results cover 300 validation problems; their forward model was trained on measurements that
  are not public.
- In the public measurements of a gfx950, kernels with partly unwritten output count as ok.
- Cross-validation by family holds out all batch and image sizes of a layer together.
- A higher efficiency on another pool or device does not make a model better."""


@dataclass(frozen=True)
class Shipped:
    """What the page uses of a model's folder."""

    folder: Path
    spec: ModelSpec
    manifest: Mapping[str, Any]
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
        found.append(
            Shipped(
                folder,
                spec,
                read_manifest(folder),
                read_json(metrics) if metrics is not None else {},
                tuple(judging_baselines(folder)),
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
    others = [one for one in models if one.spec.direction not in DIRECTIONS]
    if others:
        parts.append("## Other operations")
        parts.append(markdown_table(_HEAD, [row for one in others for row in _model_rows(one)]))
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
    return markdown_table(_HEAD, [published, *(row for one in own for row in _model_rows(one))])


def _model_rows(one: Shipped) -> list[tuple[str, ...]]:
    """Return the rows of a model; what its training was stands in the first alone."""
    first, *others = [*_validation_rows(one), *_baseline_rows(one)] or [()]
    return [first, *(("", "", "", *row[3:]) for row in others)] if first else []


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
            f"these problems, {metrics['n_splits']} folds by family",
            f"{metrics['mean_percent']:.2f}",
            f"{metrics['median_percent']:.2f}",
            f"{metrics['p10_percent']:.2f}",
            _plain(metrics["top_1_percent"]),
            f"{metrics['measure_top_percent'][2]:.2f}",
        )
    ]


def _baseline_rows(one: Shipped) -> list[tuple[str, ...]]:
    """Return the efficiencies of the accepted baselines."""
    rows: list[tuple[str, ...]] = []
    for baseline in one.baselines:
        percent = np.array([100.0 * e for e in baseline.efficiencies.values() if e is not None])
        of_mean, of_median, of_p10 = [interval(percent, statistic) for statistic in (mean, median, p10)]
        rows.append(
            (
                code(one.folder.name),
                _with_auxiliary(one, one.manifest.get("valid_rows", 0)),
                f"{one.manifest.get('unique_shapes', 0):,}",
                f"{len(percent):,} of {text(baseline.problem_set)}",
                f"{of_mean.value:.2f} [{of_mean.low:.2f}, {of_mean.high:.2f}]",
                f"{of_median.value:.2f}",
                f"{of_p10.value:.2f} [{of_p10.low:.2f}, {of_p10.high:.2f}]",
                "",
                "",
            )
        )
    return rows


def _with_auxiliary(one: Shipped, measurements: int) -> str:
    """Return the number of a model's own measurements and of its auxiliary ones, those that it was grown by
    apart."""
    older = one.manifest.get("warm_start_manifest") or {}
    taught_by = older.get("taught_by", {}) if older else one.manifest.get("taught_by", {})
    kinds = "other directions" if set(taught_by) <= set(DIRECTIONS) else "other data types"
    kinds = "another device" if set(taught_by) == {one.spec.dtype} else kinds
    parts = [
        f"{measurements:,}",
        f"{sum(taught_by.values()):,} of {kinds}" if taught_by else "",
        f"{sum(one.manifest.get('taught_by', {}).values()):,} of another compiler" if older else "",
    ]
    return " and ".join(filter(None, parts))


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
