"""The card of a model: what it learned from, how well it picks, and what it has never seen.

Everything is read from the model's folder, whose model must load; nothing is measured or predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tile_oracle.errors import ModelError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.judge.baseline import Baseline, load_baseline
from tile_oracle.judge.bootstrap import interval, mean, p10
from tile_oracle.judge.slices import slices_of
from tile_oracle.model.made_by import CONSTANTS_KEY, MadeBy
from tile_oracle.model.model_folder import ModelSpec, read_spec
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import CARD_FILE, baseline_files, metrics_file, read_json, read_manifest
from tile_oracle.pages.tables import code, text
from tile_oracle.problem import kind_text, problem_from_id
from tile_oracle.training.training_range import TrainingRange

WORST = 5
_LOW = 0.9
"""An efficiency below this is listed among the worst."""


def model_card(folder: Path) -> str:
    """Returns the card as Markdown, ending in a line break. Raises ModelError, GateError for a damaged
    folder."""
    spec, manifest = Predictor.load(folder).spec, read_manifest(folder)
    judged, folds = judging_baselines(folder), list(_cross_validated(folder, spec))
    parts = [
        f"# {text(folder.name)}",
        _about(spec, manifest, bool(folds)),
        "## Learned from\n\n" + markdown_table(("what", "measurements"), _sources(folder, manifest)),
        f"## How well it picks\n\n{_picks([*folds, *map(_judged, judged)])}",
    ]
    if judged:
        kinds = markdown_table(("kind", *(text(one.problem_set) for one in judged)), by_kind(judged))
        parts.append(f"### By kind of problem\n\nMean, P10.\n\n{kinds}")
        parts.append(f"## Known failures\n\n{_failures(judged)}")
    parts.append("## What it has never seen\n\n" + "\n".join(f"- {line}" for line in _unseen(folder)))
    return "\n\n".join(parts) + "\n"


def judging_baselines(folder: Path) -> list[Baseline]:
    """Returns the baselines that judge the model in a folder: not those of its cross-validation."""
    found = [load_baseline(path) for path in baseline_files(folder)]
    return [one for one in found if one is not None and one.model_kind != "out_of_fold"]


def write_card(folder: Path) -> Path:
    """Writes the card into the model's folder. Raises ModelError, GateError for a damaged one."""
    path = folder / CARD_FILE
    with disk_errors_as(ModelError, f"{path} cannot be written"):
        path.write_text(model_card(folder), encoding="utf-8")
    return path


def _picks(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "Nothing in its folder judges it: it has no cross-validation and no baseline."
    table = markdown_table(("judged on", "problems", "mean", "median", "P10", "best of 3"), rows)
    return f"Efficiency in percent, with 95 % bootstrap intervals over the problems.\n\n{table}"


def _about(spec: ModelSpec, manifest: Mapping[str, Any], has_folds: bool) -> str:
    of = " ".join(filter(None, (spec.op_type, spec.direction or "", spec.dtype)))
    members = ", ".join(spec.targets)
    made = str(manifest.get("timestamp", ""))[:10]
    lines = [
        f"Ranks kernels of {text(of)} for {text(spec.arch)}: {len(manifest.get('kernels') or ())} kernels "
        f"trained, {len(spec.feature_names)} features of `{spec.schema}`, recipe `{spec.recipe}` "
        f"({text(members)}){made and f', made {made}'}."
    ]
    if old := manifest.get("warm_start_from"):
        lines.append(
            f"Grown from {code(str(old))} by {manifest.get('new_n_estimators', 0):,} trees."
            + has_folds * " The cross-validation below is of the model before it grew."
        )
    return " ".join(lines)


def _sources(folder: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if rows := manifest.get("valid_rows"):
        yield f"{manifest['unique_shapes']:,} problems, one row for each pair", f"{rows:,}"
    made_by = MadeBy.of_model(folder)
    for word, counts in (
        ("device", made_by.devices),
        ("compiler", made_by.toolchains),
        ("driver", made_by.drivers),
    ):
        yield from ((f"{word} {text(name)}", f"{count:,}") for name, count in counts.items())
    if not made_by.devices:
        yield from ((f"file {text(name)}", "") for name in manifest.get("sources") or ())
    older = manifest.get("warm_start_manifest") or {}
    for taught in (older.get("taught_by", {}), manifest.get("taught_by", {})):
        yield from ((f"auxiliary: {text(name)}", f"{count:,}") for name, count in taught.items())
    for name in manifest.get(CONSTANTS_KEY) or ():
        yield f"constants fitted to {text(name)}", ""


def _cross_validated(folder: Path, spec: ModelSpec) -> Iterator[tuple[str, ...]]:
    found = (folder / metrics_file(name) for name in spec.targets)
    metrics = next((read_json(path) for path in found if path.is_file()), {})
    for grouping in ("problem", "family"):
        one = metrics.get(f"by_{grouping}")
        if isinstance(one, Mapping):
            yield (
                f"its training problems, {one['n_splits']} folds by {grouping}",
                f"{one['covered']:,}",
                f"{one['mean_percent']:.2f}",
                f"{one['median_percent']:.2f}",
                f"{one['p10_percent']:.2f}",
                f"{one['measure_top_percent'][2]:.2f}",
            )


def _percent(baseline: Baseline) -> dict[str, float]:
    return {name: 100.0 * e for name, e in baseline.efficiencies.items() if e is not None}


def _judged(one: Baseline) -> tuple[str, ...]:
    percent = np.array(list(_percent(one).values()))
    shown = [interval(percent, statistic) for statistic in (mean, p10)]
    of_mean, of_p10 = (f"{of.value:.2f} [{of.low:.2f}, {of.high:.2f}]" for of in shown)
    of_median = f"{np.median(percent):.2f}"
    return (
        f"{text(one.problem_set)}, {text(one.device)}", f"{len(percent):,}", of_mean, of_median, of_p10, ""
    )  # fmt: skip


def by_kind(judged: Sequence[Baseline]) -> list[tuple[str, ...]]:
    """Returns a row of each kind of problem: its name, and mean and P10 of each baseline."""
    found: list[dict[str, list[float]]] = []
    for one in judged:
        kinds: dict[str, list[float]] = {}
        for problem, percent in _percent(one).items():
            for kind in slices_of(problem_from_id(problem)):
                kinds.setdefault(kind, []).append(percent)
        found.append(kinds)
    return [
        (text(kind), *(_mean_and_p10(kinds.get(kind)) for kinds in found))
        for kind in dict.fromkeys(kind for kinds in found for kind in kinds)
    ]


def _mean_and_p10(percent: Sequence[float] | None) -> str:
    return f"{np.mean(percent):.2f}, {np.quantile(percent, 0.1):.2f}" if percent else ""


def _failures(judged: Sequence[Baseline]) -> str:
    low = [
        (percent, one, problem)
        for one in judged
        for problem, percent in _percent(one).items()
        if percent < 100.0 * _LOW
    ]
    if not low:
        return f"No judged problem is below {100 * _LOW:.0f} %."
    rows = [
        (code(problem), text(one.problem_set), f"{percent:.1f}")
        for percent, one, problem in sorted(low, key=lambda row: (row[0], row[2]))[:WORST]
    ]
    of_all = sum(len(_percent(one)) for one in judged)
    said = f"{len(low)} of {of_all} judged problems are below {100 * _LOW:.0f} %."
    return f"{said} The worst:\n\n{markdown_table(('problem', 'of', 'percent'), rows)}"


def _unseen(folder: Path) -> Iterator[str]:
    spec, made_by = read_spec(folder), MadeBy.of_model(folder)
    yield f"another architecture than {text(spec.arch)}, another data type than {text(spec.dtype)}"
    for words, counts in (("devices", made_by.devices), ("compilers", made_by.toolchains)):
        if counts:
            yield f"other {words} than {text(', '.join(counts), 1000)}"
    known = TrainingRange.of(folder)
    if known is None:
        yield "its training problems are not published: what lies outside of them cannot be said"
        return
    for kind, numbers in sorted(known.numbers.items(), key=lambda one: kind_text(one[0])):
        ranges = ", ".join(
            f"{name} {of.low:,}" + (f" to {of.high:,}" if of.low < of.high else "")
            for name, of in numbers.items()
        )
        yield f"{text(kind_text(kind))}: sizes outside of {text(ranges, 1000)}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown, of cells that are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
