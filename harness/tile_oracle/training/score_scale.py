"""The unit of a model's scores: ln(time) per unit, within a problem.

A few measurements elsewhere do not tell it: the kernels' shifts there hide it. The model's own
cross-validation does, over all its training problems, each predicted while held out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.files.table_file import read_parquet
from tile_oracle.files.user_file import open_regular
from tile_oracle.model.physics import nearness
from tile_oracle.model.store import OUT_OF_FOLD_FILE, TRAINING_FILE, read_manifest
from tile_oracle.record.dataset import load_records
from tile_oracle.training.training_rows import training_rows

Codes = npt.NDArray[np.int64]

ADAPTED_KEY = "adapted"
"""In train_manifest.json of an adapted model: how it was adapted. Its `scale` is that of the scores."""

_LEAST_SCALE, _MOST_SCALE = 1e-4, 1e2
_PREDICTED = "predicted_tflops"


def stated_scale(folder: Path) -> float | None:
    """Returns the scale by which a model was adapted before, or that of its cross-validation, if the folder
    has it and the training records. None if it is unknown. Raises ModelError or RecordError for an unreadable
    file.
    """
    before = read_manifest(folder).get(ADAPTED_KEY)
    if isinstance(before, dict) and isinstance(before.get("scale"), float):
        return float(before["scale"])
    if not all((folder / name).is_file() for name in (OUT_OF_FOLD_FILE, TRAINING_FILE)):
        return None
    rows = training_rows(load_records(folder / TRAINING_FILE)).table[["problem", "kernel", "latency_ms"]]
    table = _predictions(folder / OUT_OF_FOLD_FILE).merge(rows, on=["problem", "kernel"])
    table = table[table[_PREDICTED] > 0]
    if table.empty:
        return None
    # ln(TFLOPS) is -score and a constant of the problem.
    problems = pd.factorize(table["problem"])[0]
    log_time = np.log(table["latency_ms"].to_numpy(dtype=np.float64))
    slope = slope_within(problems, -np.log(table[_PREDICTED].to_numpy(dtype=np.float64)), log_time)
    return slope if _LEAST_SCALE < slope < _MOST_SCALE else None


def measured_scale(problems: Codes, score: Array, log_time: Array) -> float:
    """Returns the scale in some measurements. Raises ModelError if the scores do not order them."""
    slope = slope_within(problems, score, log_time)
    if not _LEAST_SCALE < slope < _MOST_SCALE:
        raise ModelError(
            "the model's order of these kernels has nothing to do with their times here: train a model of "
            "its own on these records"
        )
    return slope


def slope_within(problems: Codes, score: Array, log_time: Array) -> float:
    """Returns the slope of ln(time) over the score within problems. Kernels near a problem's best have the
    largest weights."""
    root = np.sqrt(nearness(log_time, problems))
    x, y = within(problems, score, root), within(problems, log_time, root)
    return float(x @ y / max(float(x @ x), 1e-300))


def within(problems: Codes, values: Array, root: Array) -> Array:
    """Weighted values without the weighted mean of their problem. root: square roots of the weights."""
    weight = root**2
    total = np.bincount(problems, weight)
    columns = values.reshape(len(values), -1)
    centred = np.empty(columns.shape)
    for number in range(columns.shape[1]):
        mean = np.bincount(problems, weight * columns[:, number]) / np.maximum(total, 1e-300)
        centred[:, number] = (columns[:, number] - mean[problems]) * root
    return centred.reshape(values.shape)


def _predictions(path: Path) -> pd.DataFrame:
    try:
        columns = ["problem", "kernel", _PREDICTED]
        with open_regular(path) as file:
            table = read_parquet(file, columns).select(columns).to_pandas()
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0]
        raise ModelError(f"{path} cannot be read: {reason}") from None
    return table.astype({"problem": str, "kernel": str})
