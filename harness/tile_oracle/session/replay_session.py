"""A session that replays recorded measurements, and copies the requested records into its run."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.kernel import Kernel
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import write_rows
from tile_oracle.record.journal import names_in
from tile_oracle.record.run import Run
from tile_oracle.record.schema import COLD
from tile_oracle.report.data import settled
from tile_oracle.session.items import REPLAY_SUITE
from tile_oracle.session.kernels_option import read_kernels
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import Plan, make_plan, rankings_of, recorded_offers
from tile_oracle.session.recording import Recording, find_recording
from tile_oracle.session.session import Session
from tile_oracle.targets.target import REPLAY, Target

_ALL = None
"""In place of kernel names: all that were recorded for the problem."""


@dataclass(frozen=True)
class Settled(Sequence[Measurement]):
    """The settled measurements of a problem, in the order of the requested kernels. Each is made when it is
    looked at: a replay of a hundred thousand pairs looks at few."""

    problem: Problem
    kernels: tuple[Kernel, ...]
    make: Callable[[Problem, Kernel], Measurement]

    def __len__(self) -> int:
        return len(self.kernels)

    @overload
    def __getitem__(self, place: int) -> Measurement: ...
    @overload
    def __getitem__(self, place: slice) -> list[Measurement]: ...
    def __getitem__(self, place: int | slice) -> Measurement | list[Measurement]:
        if isinstance(place, slice):
            return [self.make(self.problem, kernel) for kernel in self.kernels[place]]
        return self.make(self.problem, self.kernels[place])


class Replay:
    """One process's share of a replayed session.

    A pair has the settled status of its records (record.final.final_measurements). The run's folder gets the
    records themselves, all rounds, of the requested pairs.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._asked: dict[str, set[str] | None] = {}
        self._last: tuple[str, dict[str, int]] = ("", {})
        self.written: pd.DataFrame | None = None
        """The records that this process has written, if they are all that the run has."""

    def measure_all(self, problem: Problem, kernels: Iterable[Kernel]) -> Settled:
        """Returns the measurements of those kernels that were recorded, in order. Raises RecordError."""
        rows = self._rows_of(problem.id)
        found = tuple(kernel for kernel in kernels if kernel.name in rows)
        if len({kernel.name for kernel in found}) == len(rows):
            self._asked[problem.id] = _ALL
        else:
            before = self._asked.setdefault(problem.id, set())
            if before is not None:
                before.update(kernel.name for kernel in found)
        return Settled(problem, found, self._measurement)

    def unrecorded(self, problem: Problem, kernels: Sequence[Kernel]) -> int:
        """Returns the number of these pairs that were never recorded. Raises RecordError."""
        rows = self._rows_of(problem.id)
        return sum(kernel.name not in rows for kernel in kernels)

    def write(self, run: Run) -> None:
        """Add the records of all requested pairs to the run, except those that it already has.

        Raises RecordError.
        """
        asked = {problem: kernels for problem, kernels in self._asked.items() if kernels is _ALL or kernels}
        self._asked = {}
        if not asked:
            return
        chosen = self._records_of(asked)
        self.__dict__.pop("_columns", None)  # the tests are over; made again if they are not
        is_first = not names_in(run.measurements, "", ".parquet")
        if not is_first:
            there = load_records(run.folder, compact=True)
            known = pd.MultiIndex.from_frame(there[["problem", "kernel"]])
            chosen = chosen[~pd.MultiIndex.from_frame(chosen[["problem", "kernel"]]).isin(known)]
        if len(chosen):
            who = os.environ.get("PYTEST_XDIST_WORKER", "main")
            name = f"part-replay-{who}-{os.getpid()}-{time.time_ns() // 1_000_000 % 10**9}.parquet"
            write_rows(chosen, run.measurements / name)
        self.written = chosen.reset_index(drop=True) if is_first else None

    def forget_records(self) -> None:
        """Frees the memory of the records. Nothing can be asked for any more."""
        self.written = None
        self.recording.forget_records()
        for name in ("final", "_columns", "_places"):
            self.__dict__.pop(name, None)

    def _records_of(self, asked: dict[str, set[str] | None]) -> pd.DataFrame:
        """Returns the records of these problems and kernels."""
        records = self.recording.records
        if asked.keys() >= self._places.keys() and all(kernels is _ALL for kernels in asked.values()):
            return records
        of_problems = records[records["problem"].isin(list(asked))]
        if all(kernels is _ALL for kernels in asked.values()):
            return of_problems
        wanted = pd.MultiIndex.from_tuples(
            [
                (problem, kernel)
                for problem, kernels in asked.items()
                for kernel in (self._rows_of(problem) if kernels is _ALL else kernels)
            ]
        )
        return of_problems[pd.MultiIndex.from_frame(of_problems[["problem", "kernel"]]).isin(wanted)]

    @cached_property
    def final(self) -> pd.DataFrame:
        """The settled record of every recorded pair (report.data.settled). Raises RecordError."""
        return settled(self.recording.records)

    @cached_property
    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of `final` that a Measurement has. Equal texts are one object."""
        texts = {name: _texts(self.final[name]) for name in ("kernel", "status", "detail")}
        numbers = ("round", "latency_ms", "latency_min_ms", "spread", "samples")
        return texts | {name: _numbers(self.final[name]) for name in numbers}

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Problem id -> its first row in `final`, which is sorted by problem, and the row after its last."""
        codes, names = pd.factorize(self.final["problem"])
        ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
        return {
            str(name): place for name, place in zip(names, zip([0, *ends], ends, strict=False), strict=True)
        }

    def _rows_of(self, problem_id: str) -> dict[str, int]:
        """Kernel name -> its row in `final`."""
        if self._last[0] != problem_id:
            first, end = self._places.get(problem_id, (0, 0))
            names = self._columns["kernel"][first:end]
            self._last = (problem_id, dict(zip(names, range(first, end), strict=True)))
        return self._last[1]

    def _measurement(self, problem: Problem, kernel: Kernel) -> Measurement:
        row = self._rows_of(problem.id)[kernel.name]
        one = {name: column[row] for name, column in self._columns.items()}
        return Measurement(
            problem,
            kernel,
            one["status"],
            one["detail"],
            int(one["round"]),
            float(one["latency_ms"]),
            float(one["latency_min_ms"]),
            float(one["spread"]),
            int(one["samples"] if one["samples"] > 0 else 0),
        )


def _texts(column: pd.Series) -> npt.NDArray[np.object_]:
    """Returns the column's texts; "" for missing values."""
    codes, names = pd.factorize(column)
    texts: npt.NDArray[np.object_] = np.array([*map(str, names), ""], dtype=object)[codes]
    return texts


def _numbers(column: pd.Series) -> npt.NDArray[np.float64]:
    return np.asarray(pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))


class ReplaySession(Session):
    """Builds and measures nothing; the run gets the requested records."""

    suite = REPLAY_SUITE
    remeasures = False

    def __init__(self, options: SessionOptions, **process: Any) -> None:
        """process: see Session. Raises HarnessError."""
        self.recording = find_recording(options)
        self._replay = Replay(self.recording)
        self.sources = self.recording.paths
        recording = self.recording
        target = Target(REPLAY, recording.arch, device_name=recording.device, identity=recording.digest)
        super().__init__(_as_recorded(options, recording), target, recording.why, **process)
        self._learn_known_failures(recording.device)

    def _make_plan(self) -> Plan:
        options, recording = self.options, self.recording
        asked = load_problem_sets(options.problem_set) if options.problem_set else recording.problem_set()
        own = [kernel for kernel in recording.kernels if kernel.source not in LIBRARIES]
        plan = make_plan(
            options,
            self.target.arch,
            asked,
            None if options.kernel_set_asked else own,
            recording.of_libraries(),
            rankings_of(recorded_offers(recording.paths), asked.problems),
            sources=(None,) if own or options.kernel_set_asked else (),
        )
        pool = plan.all_kernels
        for part in plan.sets:
            self.recording.check(part, pool)
        return plan

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        return self.replayed(problem, (kernel,))[0]

    def replayed(self, problem: Problem, kernels: Iterable[Kernel]) -> Settled:
        """Returns the recorded measurements of these kernels. Raises HarnessError."""
        found = self._replay.measure_all(problem, kernels)
        return replace(found, make=lambda *pair: self.with_known_failure(found.make(*pair)))

    def unrecorded(self, problem: Problem, kernels: Sequence[Kernel]) -> int:
        return self._replay.unrecorded(problem, kernels)

    def recorded_kernels(self) -> Sequence[Kernel]:
        return self.recording.kernels

    def records(self, run: Run) -> pd.DataFrame:
        written = self._replay.written
        return super().records(run) if written is None else written

    def settled(self, records: pd.DataFrame) -> pd.DataFrame | None:
        is_own = records is self._replay.written
        return self._replay.final if is_own and len(records) == len(self.recording.records) else None

    def forget_records(self) -> None:
        self._outside  # noqa: B018  notes are asked for later
        self._replay.forget_records()

    def close(self) -> None:
        try:
            if self.run is not None:
                self._replay.write(self.run)
        finally:
            self.target.close()

    def header(self) -> list[str]:
        built = "nothing is built or measured"
        return [f"{self.target_line}, {built}", *self.recording.lines()]

    def settling_command(self, run: Run, suspects: Path) -> str:
        options = self.options
        words = ["pytest", "--problem-set", options.problem_set or str(options.oracle)]
        if options.kernel_set_asked:
            words += ["--kernel-set", options.kernel_set]
        # Measuring again needs the recorded device.
        return shlex.join([*words, "--target", self.measured_on, f"--pairs={suspects}"])

    @property
    def notes(self) -> list[str]:
        return [*super().notes, *self._outside]

    @property
    def measured_on(self) -> str:
        return self.recording.target

    @cached_property
    def _outside(self) -> list[str]:
        candidates = {kernel.name for kernel in self.plan.all_kernels}
        outside = sorted(set(self.recording.records["kernel"].unique()) - candidates)
        if not outside:
            return []
        more = f" and {len(outside) - 1:,} more" if len(outside) > 1 else ""
        return [
            f"{len(outside):,} recorded kernels are not candidates in --kernel-set {self.options.kernel_set} "
            f"and were left out: {outside[0]}{more}"
        ]


def _as_recorded(options: SessionOptions, recording: Recording) -> SessionOptions:
    """Returns the options with the recorded caches, kernel set and filter; of the last two those of
    --kernel-set, if it names a set."""
    options = replace(options, cold_cache=COLD in recording.records["cache"].unique())
    if not options.kernels.text:
        options = replace(options, kernels=read_kernels(recording.kernel_sources, Path()))
    if options.kernel_set_asked or not recording.kernel_set:
        return options
    recorded_filter = recording.kernel_filter or None
    return replace(
        options, kernel_set=recording.kernel_set, kernel_filter=options.kernel_filter or recorded_filter
    )
