"""Runs and baselines of ten problems with given efficiencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.picker import COLUMNS
from tile_oracle.judge.selection import select
from tile_oracle.judge.statistics import Side
from tile_oracle.judge.verdict import Verdict, judge
from tile_oracle.problem import Problem
from tile_oracle.record.final import final_measurements

PROBLEMS = some_problems(10)
IDS = [problem.id for problem in PROBLEMS]
PICK, BEST, EXTRA = some_kernels(3, PROBLEMS[0])
IDENTITY = {
    "model": "forward_fp32_cpu",
    "model_kind": "folder",
    "target": "cpu",
    "arch": "x86_64",
    "device": "Some CPU",
    "problem_set": "forward_smoke",
    "problem_set_sha256": "ab" * 32,
    "kernel_set": "default",
    "created": "2026-01-02T03:04:05Z",
    "harness_version": "0.1.0",
}
CRASH = record(PROBLEMS[0], EXTRA, status="crash", detail="signal 11")
"""A failure of a kernel that is neither the pick nor the oracle of its problem."""


def selected(
    rows: Sequence[Mapping[str, Any]],
    rankings: Sequence[tuple[str, str, float]],
    problems: Sequence[Problem] = PROBLEMS,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Records, final measurements and selection of a run. rankings: rows of COLUMNS."""
    records = frame(rows)
    final = final_measurements(records)
    table = pd.DataFrame(rankings, columns=list(COLUMNS))
    return records, final, select(problems, final, find_oracles(final), table)


def side(*efficiencies: float, sigma: float | tuple[float, ...] = 0.0, dof: float = 30.0) -> Side:
    values = np.array(efficiencies)
    return Side(values, np.log(values), np.broadcast_to(sigma, values.shape), np.full(values.shape, dof))


def a_run(
    efficiencies: Sequence[float | None], extra: Sequence[dict[str, Any]] = ()
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(selection, final) of a run with these efficiencies; None: the pick was not measured."""
    problems = PROBLEMS[: len(efficiencies)]
    rows, rankings = list(extra), []
    for problem, efficiency in zip(problems, efficiencies, strict=True):
        rows.append(record(problem, BEST, 2.0))
        if efficiency is not None and efficiency > 0:
            rows.append(record(problem, PICK, 2.0 * efficiency))
        elif efficiency is not None:
            rows.append(record(problem, PICK, status="unsupported"))
        rankings += [(problem.id, PICK.name, 9.0), (problem.id, BEST.name, 1.0)]
    _, final, selection = selected(rows, rankings, problems)
    return selection, final


def baseline(efficiencies: Sequence[float | None], known: Mapping[str, Mapping[str, str]] = {}) -> Baseline:
    by_problem = dict(zip(IDS, efficiencies, strict=False))
    return Baseline(**IDENTITY, efficiencies=by_problem, known_failures=known)


def judged(
    now: Sequence[float | None], then: Sequence[float | None], criteria: Criteria | None = None, **more: Any
) -> Verdict:
    return judge(*a_run(now), baseline(then), criteria or Criteria(), **more)
