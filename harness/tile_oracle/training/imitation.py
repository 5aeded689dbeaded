"""A small network that imitates a model, for native picks in microseconds: `imitate`.

It learns the model's scores on the problems of its training and on others near them, for the kernels that
were measured there. Native code quickly sums up one hidden layer and columns without a model of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from threadpoolctl import threadpool_limits

from tile_oracle.errors import ModelError, ProblemError
from tile_oracle.features.columns import own_pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import op_of_model, schema_named
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.network import NAME as NETWORK
from tile_oracle.model.physics import nearness
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.ranker import Ranker
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.terminal.progress_line import steps
from tile_oracle.training.fit import Effort
from tile_oracle.training.grow_network import NetworkSettings, grow_network
from tile_oracle.training.recipe import NetworkPart, Recipe

ROLE = "imitation"
"""The role of the schema that such a network reads (OperationFeatures.in_recipes); else that of pools."""
SETTINGS = NetworkSettings(hidden=(256,), count=1, epochs=6, problems=16, decay=0.05, dropout=0.0)
_PAIRS = 1_400_000
"""Pairs of problem and kernel that the model scores."""
_SPREAD = 0.5
"""Standard deviation of the log2 of a size over that of a measured problem."""
_ROUND = 0.7
"""Share of sizes that stay multiples of the power of 2 that they were multiples of."""
_PROBLEMS_AT_ONCE = 200
_TRIES = 8


def imitate(folder: Path, rows: pd.DataFrame, effort: Effort) -> tuple[Recipe, Ranker]:
    """Returns a ranker of one network that orders kernels as the model in a folder does, and its recipe.

    rows: training rows (training.training_rows) of the model's kind; their times are not read. Raises
    ModelError for a model of an operation without a schema of pools.
    """
    teacher = Predictor.load(folder, effort.threads)
    features = operation_named(op_of_model(teacher.spec.op_type)).for_models
    pool = features.pool
    if pool is None:
        raise ModelError(f"{folder}: a network needs features that are read from kernels' names")
    schema = schema_named(features.in_recipes.get(ROLE, pool.name))
    recipe = Recipe(
        ROLE,
        f"a network of one hidden layer that imitates {folder.name}",
        weights={NETWORK: 1.0},
        network=NetworkPart(schema.name, SETTINGS),
    )
    pairs = [
        (problem_from_id(str(problem)), [parse_kernel_name(str(name)) for name in sorted(set(names))])
        for problem, names in rows.groupby("problem")["kernel"]
    ]
    random = np.random.default_rng(effort.seed)
    varied = _varied([problem for problem, _ in pairs])
    own = tuple(pairs)
    for _ in range(_PAIRS // len(rows) - 1):
        pairs += [(_near(problem, varied, random), kernels) for problem, kernels in own]
    effort.say(f"  {folder.name} scores the kernels of {len(pairs):,} problems")
    table, groups, log_time = _scored(teacher, pairs)
    hardware = hardware_features(teacher.spec.arch)
    weight = nearness(log_time, groups) ** SETTINGS.near
    member = grow_network(
        schema, table, log_time, weight, groups, hardware, SETTINGS, effort.seed, effort.report and effort.say
    )
    return recipe, Ranker(teacher.spec.arch, (member,), {NETWORK: 1.0})


def _varied(problems: Sequence[Problem]) -> list[str]:
    """Returns the sizes in which the problems differ, within their kinds."""
    names = operation_named(problems[0].op).free_fields
    return [name for name in names if len({getattr(one, name) for one in problems}) > 1]


def _near(problem: Problem, names: Sequence[str], random: np.random.Generator) -> Problem:
    """Returns a problem of other sizes; the same one if none is found."""
    for _ in range(_TRIES):
        sizes = {}
        for name in (name for name in names if getattr(problem, name)):  # no padding stays none
            size = int(getattr(problem, name))
            step = size & -size if random.random() < _ROUND else 1
            sizes[name] = max(1, round(size * 2 ** random.normal(0.0, _SPREAD) / step)) * step
        try:
            return replace(problem, **sizes)
        except ProblemError:
            continue
    return problem


def _scored(
    teacher: Predictor, pairs: Sequence[tuple[Problem, Sequence[Kernel]]]
) -> tuple[pd.DataFrame, npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Returns the columns of all pairs, the number of each one's problem, and the model's ln(time)."""

    def of_part(first: int) -> tuple[pd.DataFrame, npt.NDArray[np.float64]]:
        part = pairs[first : first + _PROBLEMS_AT_ONCE]
        columns = own_pair_columns([problem for problem, _ in part], [kernels for _, kernels in part])
        groups = np.repeat(np.arange(len(part), dtype=np.int64), [len(kernels) for _, kernels in part])
        return pd.DataFrame(columns), teacher.ranker.log_time(columns, groups)

    firsts = range(0, len(pairs), _PROBLEMS_AT_ONCE)
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(teacher.threads) as threads:
        futures = [threads.submit(of_part, first) for first in firsts]
        found = [future.result() for future in steps("asking the model", futures)]
    tables, scores = zip(*found, strict=True)
    table = pd.concat(tables, ignore_index=True, join="inner")
    numbers = np.repeat(np.arange(len(pairs), dtype=np.int64), [len(kernels) for _, kernels in pairs])
    return table, numbers, np.concatenate(scores)
