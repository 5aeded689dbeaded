"""The Python interface, `import tile_oracle.api as to`: from records to oracles, models, picks and sessions.

Tables are pandas DataFrames with the columns of the records (docs/records.md). Errors are HarnessErrors with
messages of one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd

from tile_oracle.arch import load_arch
from tile_oracle.commands.evaluate import overlap_with, picker_for, rank_recorded
from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.evaluation import evaluate as evaluations
from tile_oracle.evaluation.evaluate import Comparison, Evaluation
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.fitting_model import models_for, pool_of_model
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import folder_of_model, model_places
from tile_oracle.model.trees import TreeSettings
from tile_oracle.operation import operation_named
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements, records_op
from tile_oracle.record.schema import problem_columns
from tile_oracle.training.recipe import Recipe, TreePart
from tile_oracle.training.train import TrainedModel
from tile_oracle.training.train import train as train_model
from tile_oracle.training.training_rows import training_rows

__all__ = [
    "Recipe",
    "TreePart",
    "TreeSettings",
    "compare",
    "evaluate",
    "features",
    "kernel",
    "kernels",
    "load",
    "model_folder",
    "oracle",
    "pick",
    "problem",
    "problems",
    "save_model",
    "session",
    "train",
]


class Estimator(Protocol):
    """What has been fitted to the features of pairs, as scikit-learn's regressors are."""

    def predict(self, features: Any, /) -> Any:
        """Returns a number for each row; the largest of a problem is the pick."""


def problem(text: str) -> Problem:
    """Returns the problem of an id.

    >>> to.problem("gemm-bf16-rcr-m64-n512-k256").K
    256
    """
    return problem_from_id(text)


def problems(names: str) -> list[Problem]:
    """Returns the problems of shipped sets or files, separated by commas.

    >>> len(to.problems("forward_smoke"))
    10
    """
    return list(load_problem_sets(names).problems)


def kernel(name: str) -> Kernel:
    """Returns the kernel of a full name.

    >>> to.kernel("grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave").tile_m
    64
    """
    return parse_kernel_name(name)


def kernels(like: Problem | str, arch: str, kernel_set: str = "default") -> list[Kernel]:
    """Returns the kernels of a rule set that an architecture has for a problem.

    >>> len(to.kernels("forward-bf16-n1-c64-k64-i56x56-f3x3-p1", "gfx950", "tiny"))
    8
    """
    one = problem(like) if isinstance(like, str) else like
    refusal = load_arch(arch).problem_refusal
    return [found for found in pool_of_kind(one.kind, arch, kernel_set) if refusal(found, one) is None]


def load(*records: Path | str) -> pd.DataFrame:
    """Returns the records of runs (folders) or parquet files: a row for each measurement.

    >>> to.load("measured.parquet")["status"].unique().tolist()
    ['ok']
    """
    return load_records([Path(one) for one in records])


def oracle(records: pd.DataFrame) -> pd.DataFrame:
    """Returns the fastest verified kernel of each problem: problem, kernel, latency_ms, tflops, ...

    >>> len(to.oracle(to.load("measured.parquet")))
    12
    """
    return find_oracles(final_measurements(records))


def features(records: pd.DataFrame, schema: str = "") -> pd.DataFrame:
    """Returns a row of features for each pair of problem and kernel in records, after its problem, kernel,
    latency_ms and tflops.

    schema: its name; by default the operation's own.

    >>> to.features(to.load("measured.parquet")).shape[0]
    120
    """
    return _features(training_rows(records).table, records, schema)


def _features(rows: pd.DataFrame, records: pd.DataFrame, schema: str) -> pd.DataFrame:
    """rows: the training rows of the records."""
    asked = schema_named(schema) if schema else operation_named(records_op(records)).for_models.own
    values = asked.compute(rows, hardware_features(str(records["arch"].dropna().iloc[0])))
    found = rows[["problem", "kernel", "latency_ms", "tflops"]].reset_index(drop=True)
    return pd.concat([found, pd.DataFrame(values, columns=list(asked.names))], axis=1)


def train(records: pd.DataFrame, recipe: str | Recipe | None = None, *, folds: int = 5) -> TrainedModel:
    """Returns a model trained on records, cross-validated by problem and by family.

    recipe: a name (`tile-oracle model train --help` lists them) or one of your own; by default the one that
    suits the records.

    >>> mine = to.Recipe("mine", "few trees", (to.TreePart("log_time", settings=to.TreeSettings(trees=9)),))
    >>> model = to.train(to.load("measured.parquet"), mine, folds=2)
    >>> model.spec.recipe
    'mine'
    """
    return train_model(records, recipe=recipe, n_splits=folds)


def save_model(
    model: TrainedModel | Estimator, place: Path | str, records: pd.DataFrame | None = None, schema: str = ""
) -> Path:
    """Write what `pytest --model PLACE` judges; return the place.

    A trained model becomes a folder. Any other estimator that was fitted to `features` becomes a CSV file of
    its picks for the pairs of records, since its code cannot be kept in a file of data.

    >>> to.save_model(model, "models/mine").name
    'mine'
    >>> table = to.features(to.load("measured.parquet"))
    >>> class Small:
    ...     def predict(self, features):
    ...         return features["tile_m"]
    >>> to.save_model(Small(), "small.csv", to.load("measured.parquet")).name
    'small.csv'
    """
    place = Path(place)
    if isinstance(model, TrainedModel):
        model.save(place)
        return place
    if records is None or place.suffix != ".csv":
        raise ModelError(f"{place}: an estimator's picks are a .csv file, and need the records to pick for")
    rows = training_rows(records).table
    table = _features(rows, records, schema)
    scores = np.asarray(model.predict(table.iloc[:, 4:]), dtype=np.float64)
    if scores.shape != (len(table),) or not np.isfinite(scores).all():
        raise ModelError("the estimator did not predict one finite number for each pair")
    dimensions = list(problem_columns(records_op(records)))
    picks = rows[dimensions].assign(kernel_name=rows["kernel"])
    picks["predicted_tflops"] = scores - scores.min() + 1.0
    with disk_errors_as(ModelError, f"cannot write {place}"):
        write_atomically(place, picks.to_csv(index=False).encode())
    return place


Judged: TypeAlias = Path | str | pd.DataFrame
"""A model folder, the name of a shipped model, a file of picks, or a table of problem, kernel and
predicted_tflops."""


def model_folder(name: str) -> Path:
    """Returns the folder of a model, by its path or the name of a shipped one.

    >>> to.model_folder("gemm_bf16_sm_90").name
    'gemm_bf16_sm_90'
    """
    return folder_of_model(name)


def evaluate(model: Judged, records: pd.DataFrame) -> Evaluation:
    """Judge a model, or picks, by records.

    >>> found = to.evaluate("models/mine", to.load("measured.parquet"))
    >>> 0 < found.headlines["mean"].value <= 100
    True
    """
    if isinstance(model, pd.DataFrame):
        return evaluations.evaluate("picks", records, model)
    picker = picker_for(str(model), records)
    return evaluations.evaluate(Path(model).name, records, rank_recorded(picker, records)[0])


def compare(old: Judged, new: Judged, records: pd.DataFrame) -> Comparison:
    """Judge two models, or picks, by the same records: efficiencies and their differences, with intervals.

    >>> to.compare("models/mine", "models/mine", to.load("measured.parquet")).verdict.failed
    False
    """
    pickers = [picker_for(str(one), records) for one in (old, new) if not isinstance(one, pd.DataFrame)]
    in_sample = {name for one in pickers for name in overlap_with(one, records).problems}
    return evaluations.compare(records, evaluate(old, records), evaluate(new, records), in_sample=in_sample)


def pick(
    like: Problem | str, arch: str, model: Path | str = "", kernels: Sequence[Kernel] = ()
) -> list[tuple[Kernel, float]]:
    """Returns the candidates of a problem with their predicted TFLOPS, best first.

    model: a folder or a shipped model's name; by default the best founded one, as in sessions. kernels: the
    candidates; by default those that the model was trained on. A model that only orders has scores instead.

    >>> ranked = to.pick("forward-bf16-n1-c64-k64-i56x56-f3x3-p1", "sm_90")
    >>> ranked[0][1] >= ranked[1][1]
    True
    """
    one = problem(like) if isinstance(like, str) else like
    if model:
        folder = folder_of_model(model)
    else:
        folder = models_for(one.kind, arch, model_places(Path("models"), arch), kernels=kernels).required
    refusal = load_arch(arch).problem_refusal
    asked = [found for found in kernels or pool_of_model(folder, one.kind) if refusal(found, one) is None]
    return Predictor.load(folder).rank(one, asked)


def session(*arguments: str, folder: Path | str = ".") -> dict[str, Any]:
    """Run `pytest` with these arguments in a process of its own; return what --report-json says of it.

    >>> found = to.session("--problem-set", "mine.csv", "--oracle", "measured.parquet", "--model", "none")
    >>> found["sets"][0]["efficiency"]["problems"]
    12
    """
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        command = [sys.executable, "-m", "pytest", *arguments, f"--report-json={report}"]
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        if not report.is_file():
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise HarnessError(f"the session ended with status {done.returncode}: {said[-1] if said else ''}")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found
