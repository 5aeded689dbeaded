"""The training problems of a model, to recognise in-sample results.

The manifest of a model folder names every problem with a digest of its training rows. Published folders do
not, so their training problems are unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.files.vouched_files import MANIFEST_FILE
from tile_oracle.model.store import read_manifest
from tile_oracle.record.dataset import with_texts
from tile_oracle.training.training_rows import training_rows

PROBLEMS_KEY = "problems"
"""In train_manifest.json: problem id -> digest of its training rows (`problem_digests`)."""

_DIGITS = 16


@dataclass(frozen=True)
class TrainedOn:
    """problems: id -> digest of the training rows. known: whether these are
    all training problems; False also for a model that was grown on an older one with unknown problems."""

    problems: Mapping[str, str]
    known: bool = True


@dataclass(frozen=True)
class Overlap:
    """Judged problems that the model was trained on, sorted. same_measurements: how many of them are judged
    by the measurements it was trained on. known: whether its training problems are known."""

    problems: tuple[str, ...] = ()
    same_measurements: int = 0
    known: bool = True


def problem_digests(rows: pd.DataFrame) -> dict[str, str]:
    """Problem id -> digest of its training rows (tile_oracle.training.training_rows): kernels and times."""
    digests = {}
    ordered = rows.sort_values(["problem", "kernel"])
    for problem, group in ordered.groupby("problem", sort=True, observed=True):
        lines = (
            f"{kernel} {latency:.9g}\n"
            for kernel, latency in zip(group["kernel"], group["latency_ms"], strict=True)
        )
        digests[str(problem)] = hashlib.sha256("".join(lines).encode()).hexdigest()[:_DIGITS]
    return digests


def trained_on(folder: Path) -> TrainedOn:
    """Returns the training problems that a model folder states. Raises ModelError for an invalid manifest."""
    return _of_manifest(read_manifest(folder), folder / MANIFEST_FILE) or TrainedOn({}, known=False)


def overlap(folders: Iterable[Path], records: pd.DataFrame, problems: Collection[str]) -> Overlap:
    """Which of these problems the models were trained on. records: the measurements that judge the models."""
    trained: dict[str, str] = {}
    known = True
    for folder in folders:
        one = trained_on(folder)
        trained |= one.problems
        known &= one.known
    seen = sorted(set(problems) & trained.keys())
    return Overlap(tuple(seen), _same(trained, records, seen), known)


def _same(trained: Mapping[str, str], records: pd.DataFrame, seen: Collection[str]) -> int:
    if not any(trained[problem] for problem in seen):
        return 0
    try:
        rows = training_rows(with_texts(records[records["problem"].isin(list(seen))])).table
    except HarnessError:
        return 0  # no ok row among them
    now = problem_digests(rows)
    return sum(bool(trained[problem]) and trained[problem] == now.get(problem) for problem in seen)


def _of_manifest(manifest: Mapping[str, Any], path: Path) -> TrainedOn | None:
    """Returns the problems in a manifest, including those of the models it was grown on; None if it names
    none."""
    named = manifest.get(PROBLEMS_KEY)
    if named is None:
        return None
    if not isinstance(named, dict) or not all(isinstance(digest, str) for digest in named.values()):
        raise ModelError(f"{path}: {PROBLEMS_KEY} is not an object of problem ids and digests")
    older = manifest.get("warm_start_manifest")
    if not manifest.get("warm_start_from") or not isinstance(older, dict):
        return TrainedOn(dict(named))
    before = _of_manifest(older, path)
    if before is None:
        return TrainedOn(dict(named), known=False)
    return TrainedOn({**before.problems, **named}, before.known)
