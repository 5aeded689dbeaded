"""Answers pairs from recorded measurements, and copies the requested records into the run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.oracle import final_measurements
from tile_oracle.problem import Problem
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.journal import names_in
from tile_oracle.record.run import Run
from tile_oracle.session.recording import Recording

_Settled = tuple[str, str, int, float, float, float, int]
"""status, detail, round, latency_ms, latency_min_ms, spread and samples, as in a Measurement."""


class Replay:
    """One process's share of a replayed session.

    A pair has the settled status of its records (oracle.final_measurements). The run's folder gets the
    records themselves, all rounds, of the requested pairs.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._asked: dict[str, set[str]] = {}

    def measure_all(self, problem: Problem, kernels: Iterable[Kernel]) -> list[Measurement]:
        """The measurements of those kernels that were recorded, in order. Raises RecordError."""
        rows = self._of_problem(problem.id)
        found = [
            Measurement(problem, kernel, *rows[kernel.name]) for kernel in kernels if kernel.name in rows
        ]
        for one in found:
            if not one.status:
                raise RecordError(f"the record of {one.kernel.name} on {problem.id} has no status")
        self._asked.setdefault(problem.id, set()).update(one.kernel.name for one in found)
        return found

    def unrecorded(self, problem: Problem, kernels: Sequence[Kernel]) -> int:
        """The number of these pairs that were never recorded. Raises RecordError."""
        rows = self._of_problem(problem.id)
        return sum(kernel.name not in rows for kernel in kernels)

    def write(self, run: Run) -> None:
        """Add the records of all requested pairs to the run, except those that it already has.

        Raises RecordError.
        """
        asked = {problem: kernels for problem, kernels in self._asked.items() if kernels}
        self._asked = {}
        if not asked:
            return
        records = self.recording.records
        of_problems = records[records["problem"].isin(list(asked))]
        if _are_whole(of_problems, asked):
            chosen = of_problems
        else:
            wanted = pd.MultiIndex.from_tuples(
                [(problem, kernel) for problem, kernels in asked.items() for kernel in kernels]
            )
            chosen = of_problems[pd.MultiIndex.from_frame(of_problems[["problem", "kernel"]]).isin(wanted)]
        if names_in(run.measurements, "", ".parquet"):
            there = load_records(run.folder)
            known = pd.MultiIndex.from_frame(there[["problem", "kernel"]])
            chosen = chosen[~pd.MultiIndex.from_frame(chosen[["problem", "kernel"]]).isin(known)]
        if len(chosen):
            who = os.environ.get("PYTEST_XDIST_WORKER", "main")
            name = f"part-replay-{who}-{os.getpid()}-{time.time_ns() // 1_000_000 % 10**9}.parquet"
            write_dataset(chosen, run.measurements / name)

    def _of_problem(self, problem_id: str) -> Mapping[str, _Settled]:
        return self._settled.get(problem_id, {})

    @cached_property
    def _settled(self) -> dict[str, dict[str, _Settled]]:
        """Problem id -> kernel name -> its settled values."""
        final = final_measurements(self.recording.records)
        values = zip(
            *(_texts(final[name]) for name in ("status", "detail")),
            final["round"].astype("int64").tolist(),
            *(_numbers(final[name]).tolist() for name in ("latency_ms", "latency_min_ms", "spread")),
            _numbers(final["samples"]).fillna(0).astype("int64").tolist(),
            strict=True,
        )
        table: dict[str, dict[str, _Settled]] = {}
        pairs = zip(final["problem"].tolist(), final["kernel"].tolist(), strict=True)
        for (problem, kernel), settled in zip(pairs, values, strict=True):
            table.setdefault(problem, {})[kernel] = settled
        return table


def _are_whole(records: pd.DataFrame, asked: Mapping[str, set[str]]) -> bool:
    """Whether all recorded kernels of every requested problem were requested: the usual case."""
    counts = records.groupby("problem", sort=False, observed=True)["kernel"].nunique()
    return all(count == len(asked[str(problem)]) for problem, count in counts.items())


def kernels_outside(recording: Recording, pools: Iterable[Sequence[Kernel]]) -> tuple[str, ...]:
    """Recorded kernels that the pool no longer has, sorted."""
    pool = {kernel.name for kernels in pools for kernel in kernels}
    return tuple(sorted(set(recording.records["kernel"].unique()) - pool))


def _texts(column: pd.Series) -> list[str]:
    """The column's texts; "" for what is none."""
    texts: list[str] = column.astype(object).where(column.notna(), "").tolist()
    return texts


def _numbers(column: pd.Series) -> pd.Series:
    return pd.to_numeric(column, errors="coerce").astype("float64")
