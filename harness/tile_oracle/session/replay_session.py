"""A session that replays recorded measurements."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.kernel import Kernel
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.record.run import Run
from tile_oracle.session.kernels_option import read_kernels
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import Plan, make_plan
from tile_oracle.session.recording import Recording, find_recording
from tile_oracle.session.replay import Replay, Settled
from tile_oracle.session.session import Session
from tile_oracle.session.suite_names import REPLAY_SUITE
from tile_oracle.session.vendor_model import rankings_of, recorded_offers
from tile_oracle.targets.target import REPLAY, Target

if TYPE_CHECKING:
    import pandas as pd


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
        if not self._begun:
            self._learn_known_failures(self.recording.device)
        self._begun.add(problem.id)
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
    """Returns the options with the recorded kernel set and filter, unless --kernel-set names a set."""
    if not options.kernels.text:
        options = replace(options, kernels=read_kernels(recording.kernel_sources, Path()))
    if options.kernel_set_asked or not recording.kernel_set:
        return options
    recorded_filter = recording.kernel_filter or None
    return replace(
        options, kernel_set=recording.kernel_set, kernel_filter=options.kernel_filter or recorded_filter
    )
