"""The training problems of a model, to recognise in-sample results.

The manifest of a model folder names every problem with a digest of its training rows. Older folders have
their training records or the predictions of their cross-validation instead. Published folders have neither,
so their training problems are unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.files.table_file import read_parquet
from tile_oracle.files.user_file import open_regular
from tile_oracle.files.vouched_files import MANIFEST_FILE
from tile_oracle.model.store import OUT_OF_FOLD_FILE, TRAINING_FILE, read_manifest
from tile_oracle.record.dataset import load_records, with_texts
from tile_oracle.training.training_rows import training_rows

PROBLEMS_KEY = "problems"
"""In train_manifest.json: problem id -> digest of its training rows (`problem_digests`)."""

_DIGITS = 16
_TABLES = (TRAINING_FILE, OUT_OF_FOLD_FILE)


@dataclass(frozen=True)
class TrainedOn:
    """problems: id -> digest of the training rows, "" if only the problem is known. known: whether these are
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
    for problem, group in ordered.groupby("problem", sort=True):
        lines = (
            f"{kernel} {latency:.9g}\n"
            for kernel, latency in zip(group["kernel"], group["latency_ms"], strict=True)
        )
        digests[str(problem)] = hashlib.sha256("".join(lines).encode()).hexdigest()[:_DIGITS]
    return digests


def trained_on(folder: Path) -> TrainedOn:
    """The training problems that a model folder states. Raises ModelError for an invalid manifest."""
    manifest = read_manifest(folder)
    found = _of_manifest(manifest, folder / MANIFEST_FILE)
    if found is not None:
        return found
    for name in _TABLES:
        if (folder / name).is_file():
            return TrainedOn(dict.fromkeys(_problems_in(folder / name), ""), _is_whole(manifest))
    return TrainedOn({}, known=False)


def with_problems(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of an older folder, with its training problems added from the tables in the folder. Only
    training records give digests. A manifest that names its problems, and one of a folder without tables, is
    unchanged. Raises ModelError or RecordError for a table that cannot be read."""
    if PROBLEMS_KEY in manifest:
        return dict(manifest)
    if (folder / TRAINING_FILE).is_file():
        rows = training_rows(load_records(folder / TRAINING_FILE)).table
        return {**manifest, PROBLEMS_KEY: problem_digests(rows)}
    if (folder / OUT_OF_FOLD_FILE).is_file():
        problems = sorted(_problems_in(folder / OUT_OF_FOLD_FILE))
        return {**manifest, PROBLEMS_KEY: dict.fromkeys(problems, "")}
    return dict(manifest)


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
    """The problems in a manifest, including those of the models it was grown on; None if it names none."""
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


def _is_whole(manifest: Mapping[str, Any]) -> bool:
    """Whether a folder's own tables are all its training data: not if the model was grown on an older one."""
    return not manifest.get("warm_start_from")


def _problems_in(path: Path) -> set[str]:
    try:
        with open_regular(path) as file:
            column = read_parquet(file, ["problem"]).column("problem")
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0]
        raise ModelError(f"{path} cannot be read: {reason}") from None
    return set(map(str, column.unique().to_pylist()))
