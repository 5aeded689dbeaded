"""The study of a model's recipe: held-out metrics, and the published recipe for comparison.

It is computed once, where the measurements are available, and kept as study.json in the model's folder. The
results page is made from these files alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.evaluation.evaluate import Evaluation, evaluate
from tile_oracle.evaluation.folder_model import FolderModel, rank_recorded, without_refused
from tile_oracle.evaluation.picks_file import read_picks
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.vouched_files import vouch_for
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import STUDY_FILE, json_bytes, read_json
from tile_oracle.record.final import final_measurements, problems_of
from tile_oracle.record.twins import is_measured
from tile_oracle.training.cross_validation import predicted_pairs
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.trained_on import trained_on
from tile_oracle.training.training_rows import training_rows

SCHEMA = 1
DIGITS = 4
"""Decimals of the numbers in the file; further digits depend on the machine."""


def study(
    folder: Path,
    training: pd.DataFrame,
    test: pd.DataFrame,
    *,
    recipes: Sequence[str] = ("default", "published"),
    picks: Mapping[str, Path] | None = None,
    sources: Mapping[str, str] | None = None,
    effort: Effort | None = None,
) -> dict[str, Any]:
    """The study of a model folder: recipes trained on `training` and evaluated on `test`, both restricted to
    the folder's architecture, direction and data type.

    Problems in both are left out of the test and counted. picks: name -> CSV file of a model's picks for the
    test problems. sources: names of the two record sets. Raises ModelError, RecordError.
    """
    effort = effort or Effort()
    spec = read_spec(folder)
    training, test = (_of_kind(table, spec.arch, spec.direction, spec.dtype) for table in (training, test))
    seen = test["problem"].isin(training["problem"])
    both, test = int(test.loc[seen, "problem"].nunique()), test[~seen]
    rows = training_rows(training).table
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "arch": spec.arch,
        "direction": spec.direction,
        "dtype": spec.dtype,
        "device": _device(training) or _device(test),
        "training": _about(training) | {"source": (sources or {}).get("training", "")},
        "test": _about(test) | {"source": (sources or {}).get("test", ""), "problems_left_out": both},
        "rows": [],
        "seed": effort.seed,
    }
    if len(test):
        document["rows"] = _judged(folder, spec.arch, rows, training, test, recipes, picks or {}, effort)
        document["verification"] = verification(test)
    return {str(key): _rounded(value) for key, value in document.items()}


def write_study(folder: Path, document: Mapping[str, Any]) -> Path:
    """Writes MODEL/study.json atomically and returns its path. Raises ModelError."""
    path = folder / STUDY_FILE
    try:
        write_atomically(path, json_bytes(document))
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror}") from None
    vouch_for(folder, [STUDY_FILE], ModelError)
    return path


def read_study(folder: Path) -> dict[str, Any] | None:
    """The folder's study, None if there is none. Raises ModelError for another schema."""
    path = folder / STUDY_FILE
    if not path.is_file():
        return None
    document = read_json(path)
    if document.get("schema") != SCHEMA:
        raise ModelError(f"{path} is of schema {document.get('schema')!r}, this version reads {SCHEMA}")
    return document


def verification(records: pd.DataFrame) -> dict[str, Any]:
    """The effect of the output check: pairs by status, and the problems whose fastest kernel is wrong or
    unverified, so that it would be the oracle without the check.

    Imported rows that were trusted are ok and state in `detail` which output was unwritten. Wrong rows have a
    time only if they were imported (our own runs do not time wrong kernels).
    """
    final = final_measurements(records)
    # Imports keep the time of a wrong row in the records; `final_measurements` removes it.
    timed = records[records["latency_ms"].notna() & records["status"].isin(["ok", "wrong"])]
    timed = timed[is_measured(timed)]
    fastest = timed.sort_values(["latency_ms", "kernel"]).drop_duplicates("problem")
    unverified = _unverified(fastest)
    counts = final["status"].value_counts()
    return {
        "pairs": {str(status): int(counts[status]) for status in sorted(counts.index)},
        "problems": int(final["problem"].nunique()),
        "problems_without_oracle": int(find_oracles(final)["oracle_kernel"].isna().sum()),
        "problems_with_a_wrong_kernel": int(final.loc[final["status"] == "wrong", "problem"].nunique()),
        "unverified_oracles": int(unverified.sum()),
        "timed_without_check": int(_unverified(timed).sum()),
    }


def _unverified(timed: pd.DataFrame) -> pd.Series:
    """Rows whose output was not verified."""
    detail = timed["detail"].astype(object)
    return (timed["status"] == "wrong") | (detail.notna() & (detail != ""))


def _judged(
    folder: Path,
    arch: str,
    rows: pd.DataFrame,
    training: pd.DataFrame,
    test: pd.DataFrame,
    recipes: Sequence[str],
    picks: Mapping[str, Path],
    effort: Effort,
) -> list[dict[str, Any]]:
    found = []
    for name, path in picks.items():
        effort.say(f"picks: {name}")
        found.append(_row(name, "picks", evaluate(name, test, read_picks(path, problems_of(test)))))
    pool = [parse_kernel_name(str(name)) for name in sorted(test["kernel"].unique())]
    for name in recipes:
        effort.say(f"recipe {name}: training on {rows['problem'].nunique()} problems")
        ranker = fit(recipe_named(name).for_rows(rows), rows, arch, effort)
        # All kernels that the rules allow, because a model may pick a wrong one.
        rankings = without_refused(predicted_pairs(ranker, test, pool, effort.threads), test, arch)
        found.append(_row(name, "recipe", evaluate(name, test, rankings, effort.seed)))
    if _is_new_to(folder, test):
        rankings = rank_recorded(FolderModel.judged_by(folder, test), test)
        found.append(_row("the model as shipped", "model", evaluate("model", test, rankings)))
    return found


def _is_new_to(folder: Path, test: pd.DataFrame) -> bool:
    """Whether the shipped model was trained on none of the test's problems, according to its folder."""
    training = trained_on(folder)
    return training.known and not test["problem"].isin(list(training.problems)).any()


def _row(name: str, kind: str, evaluation: Evaluation) -> dict[str, Any]:
    figures = evaluation.efficiency
    return {
        "name": name,
        "kind": kind,
        "problems": figures.covered,
        "headlines": {key: asdict(value) for key, value in evaluation.headlines.items()},
        "top_1_percent": figures.top_1_percent,
        "top_5_percent": figures.top_5_percent,
        "measure_top": {key: asdict(value) for key, value in evaluation.top.items()},
        "ceiling": dict(evaluation.ceiling),
        "slices": evaluation.slices.to_dict("records"),
        "worst": evaluation.worst(5)[["problem", "efficiency", "reason"]].to_dict("records"),
    }


def _of_kind(records: pd.DataFrame, arch: str, direction: str | None, dtype: str) -> pd.DataFrame:
    chosen = records[(records["arch"] == arch) & (records["dtype"] == dtype)]
    if direction is not None and "direction" in chosen:
        chosen = chosen[chosen["direction"] == direction]
    return chosen


def _about(records: pd.DataFrame) -> dict[str, Any]:
    return {
        "measurements": len(records.drop_duplicates(["problem", "kernel"])),
        "problems": int(records["problem"].nunique()),
        "kernels": int(records["kernel"].nunique()),
        "device": _device(records),
    }


def _device(records: pd.DataFrame) -> str:
    named = sorted({str(value) for value in records["device"].dropna().unique()} - {""})
    return ", ".join(named)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return None if value != value else round(value, DIGITS)
    if isinstance(value, Mapping):
        return {str(key): _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value
