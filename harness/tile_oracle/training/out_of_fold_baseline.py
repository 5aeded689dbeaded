"""The cross-validated efficiencies of a trained model as a baseline for the gate."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.judge.baseline import Baseline, make_baseline
from tile_oracle.judge.baseline_file import baseline_path, save_baseline
from tile_oracle.training.cross_validation_metrics import selection_of, settled
from tile_oracle.training.train import TrainedModel
from tile_oracle.training.training_rows import training_rows
from tile_oracle.version import __version__


def out_of_fold_baseline(model: TrainedModel, name: str, records: pd.DataFrame, problem_set: str) -> Baseline:
    """The model's efficiencies on its own records, each problem predicted while held out.

    Raises ModelError for a model that was not cross-validated.
    """
    if model.out_of_fold is None or not model.checks:
        raise ModelError(f"{name} has no baseline: {model.unchecked}")
    kind = records["arch"] == model.spec.arch
    if model.spec.direction is not None:
        kind &= records["direction"] == model.spec.direction
    rows = training_rows(records[kind & (records["dtype"] == model.spec.dtype)]).table
    selection = selection_of(rows, model.out_of_fold)
    ids = "\n".join(sorted(selection["problem"]))
    device = records.loc[kind, "device"].dropna()
    return make_baseline(
        selection,
        settled(rows),
        previous=None,
        model=name,
        model_kind="out_of_fold",
        target=str(records.loc[kind, "target"].iloc[0]),
        arch=model.spec.arch,
        device=str(device.iloc[0]) if len(device) else model.spec.arch,
        problem_set=problem_set,
        problem_set_sha256=hashlib.sha256(ids.encode()).hexdigest(),
        kernel_set="measured",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        harness_version=__version__,
    )


def save_beside(baseline: Baseline, folder: Path) -> Path:
    """Writes the baseline into the model's folder and returns its path. Raises GateError."""
    path = baseline_path(
        folder.parent, folder.name, baseline.device, baseline.problem_set, baseline.kernel_set
    )
    save_baseline(baseline, path)
    return path
