"""A project with a trained model and a synthetic recorded oracle: no device, no compiler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tests.made_records import make_problems, true_time_ms
from tests.pytest_project import Project
from tests.report.records_factory import frame, record
from tile_oracle.commands.merge import write_oracle
from tile_oracle.kernel import Kernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

DEVICE = "Made-up Accelerator"
SET = "layers.csv"


@dataclass(frozen=True)
class Recorded:
    """The project, the `problems` and `kernels` of its problem set, and the `model` and `oracle` in its
    models/."""

    project: Project
    problems: list[GroupedConvProblem]
    kernels: tuple[Kernel, ...]
    records: pd.DataFrame
    model: Path
    oracle: Path


def measured(
    problem: GroupedConvProblem, kernel: Kernel, noise: float, **columns: object
) -> dict[str, object]:
    """One row, as recorded on gfx950."""
    latency_ms = true_time_ms(problem, kernel) * noise
    row = record(problem, kernel, problem.tflops(latency_ms))
    return row | {"target": "gfx950", "arch": "gfx950", "device": DEVICE} | columns


def records_of(
    problems: list[GroupedConvProblem], kernels: tuple[Kernel, ...], seed: int = 0
) -> pd.DataFrame:
    """A sweep: every pair once, with 0.2 % noise."""
    random = np.random.default_rng(seed)
    noise = np.exp(0.002 * random.standard_normal((len(problems), len(kernels))))
    return frame(
        [
            measured(problem, kernel, float(noise[i, j]))
            for i, problem in enumerate(problems)
            for j, kernel in enumerate(kernels)
        ]
    )


def train_model(records: pd.DataFrame, folder: Path) -> None:
    """Trains a small LightGBM model on tile-oracle's own features."""
    train(records, recipe=recipe_named("log_time").with_trees(150), n_splits=2).save(folder)


_FILES: dict[str, bytes] = {}
"""Those that make_recorded has added to a project: it trains once in a process."""


def make_recorded(project: Project) -> Recorded:
    """The model is trained on 40 problems, the oracle recorded on 12 others with the set `tiny`."""
    everything = make_problems(52, seed=3)
    kernels = tuple(pool_of_kind(everything[0].kind, arch="gfx950", rules="tiny", where=None))
    problems = everything[:12]
    records, folder = records_of(problems, kernels), project.folder
    model = folder / "models" / "made_up"
    if not _FILES:
        path = project.problem_set(SET, tuple(problem.id for problem in problems))
        write_dataset(records, folder / "measured.parquet")
        train_model(records_of(everything[12:], kernels, seed=1), model)
        part = load_problem_set(str(path))
        write_oracle([folder / "measured.parquet"], model=model, problem_set=part, kernel_set="tiny")
        made = [path, folder / "measured.parquet", *(one for one in model.rglob("*") if one.is_file())]
        _FILES.update({str(one.relative_to(folder)): one.read_bytes() for one in made})
    for name, data in _FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (oracle,) = model.glob("*/*/*.parquet")
    return Recorded(project, problems, kernels, records, model, oracle)
