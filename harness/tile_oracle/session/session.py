"""What all sessions with --problem-set have in common: options, plan, models, run, budget."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.judge.criteria import Criteria
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem
from tile_oracle.problem_set import ProblemSet
from tile_oracle.record.attempts import forget_settled
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import digest_of
from tile_oracle.record.journal import left_unsealed
from tile_oracle.record.run import Run, join_run, open_run
from tile_oracle.record.schema import COLD
from tile_oracle.session.command_line import CommandLine
from tile_oracle.session.models import (
    NONE,
    ModelChoice,
    baseline_for,
    choose_model,
    held_of,
    refuse_damaged_baselines,
)
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import Plan
from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET, KERNEL_SOURCES
from tile_oracle.targets.target import Target

if TYPE_CHECKING:
    import pandas as pd

    from tile_oracle.session.display import Text
    from tile_oracle.session.first import First


class Session(ABC):
    """One per process; worker processes of pytest-xdist have their own, within the controller's run.

    A LiveSession measures, a ReplaySession replays records (opening.open_session). suite: the test file that
    runs if none is named. remeasures: whether suspects can be measured again. sources: the files with the
    replayed records.
    """

    suite: Path
    remeasures: bool
    sources: tuple[Path, ...] = ()
    in_turn = True
    """Whether pairs are measured, or read, in this process, when tests ask for them."""

    def __init__(
        self,
        options: SessionOptions,
        target: Target,
        target_reason: str,
        *,
        deadline: float | None = None,
        run_folder: str | None = None,
        run_owner: str = "",
        devices: int | None = None,
    ) -> None:
        """target_reason: why this target, "" for an asked one. deadline: the end of the budget on the
        monotonic clock. run_folder, run_owner: for a worker, the controller's run and the controller
        (record.owner). devices: how many measure at once, each in a process of its own; None for the one of
        this process, or all of a cluster.

        Raises HarnessError for options that cannot be used.
        """
        self.criteria = Criteria(**options.tolerances, rule=options.criteria)
        self.target = target
        self.target_line = f"target: {target.name}" + (f" ({target_reason})" if target_reason else "")
        self.options, self.devices = options, devices
        self.plan = self._make_plan()
        self.pickers: tuple[tuple[ModelChoice, ...], ...] = tuple(
            tuple(choose_model(one, part, self.target, self.plan) for one in options.of_each_model())
            for part in self.plan.sets
        )
        """Of each problem set, the pickers that are judged."""
        refuse_damaged_baselines(self.judged, options, self.target)
        if deadline is None and options.budget_s is not None:
            deadline = time.monotonic() + options.budget_s
        self.deadline = deadline
        self.budget_spent = False
        self._began, self.began_at = time.monotonic(), datetime.now(UTC)
        self.pytest_s = 0.0
        """What pytest itself took in each worker, collecting tests and between measurements."""
        self.run: Run | None = None
        if run_folder:
            self.run = join_run(Path(run_folder), run_owner, resumed=options.resume)
        self._kernels_of: dict[str, list[Kernel]] = {}
        self._known: dict[tuple[str, str], str] = {}
        self._held: dict[str, str] = {}
        self.keep_samples = False
        self.show: Callable[[Text], None] = lambda line: None
        """Shows a line while the session waits; rewritten in place."""

    def conditions(self) -> dict[str, str]:
        """Facts about how this session has measured, for the report: name -> text."""
        return {}

    def devices_line(self) -> str:
        """Returns how many devices there are, for the terminal; "" where it is the one of this process."""
        return ""

    @cached_property
    def lacking(self) -> frozenset[str]:
        """The names of candidates that the kernel source has no code for, so that no model can pick
        them; without those that only the records show (tile_oracle.record.not_built)."""
        return frozenset()

    @abstractmethod
    def _make_plan(self) -> Plan:
        """Returns the pairs of the session. Raises HarnessError."""

    @property
    def judged(self) -> Iterator[tuple[ModelChoice, ProblemSet]]:
        """Each picker with the problem set that it is judged on."""
        for choices, part in zip(self.pickers, self.plan.sets, strict=True):
            yield from ((choice, part) for choice in choices)

    # ---- the run ----------------------------------------------------------------------------

    def open_run(self) -> Run:
        """Returns the run's folder, made or found at the first call. Raises RecordError."""
        if self.run is None:
            self.run = open_run(
                self.options.report_dir,
                self._purpose(),
                stem=self._stem(),
                name=self.options.run_name,
                resume=self.options.resume,
            )
        return self.run

    def _stem(self) -> str:
        """Returns the start of a new run's name."""
        shard = self.options.shard
        part = "" if shard is None else f"-shard{shard.number}of{shard.count}"
        return f"{'+'.join(one.name for one in self.plan.sets)}-{self.target.name}{part}"

    def describe_run(self, run: Run) -> str:
        """Returns where the run is, and whether it is a new one."""
        if run.resumed:
            return f"run: {run.folder} (resumed)"
        return f"run: {run.folder}" + (" (new: there is no run to resume)" if self.options.resume else "")

    def _purpose(self) -> dict[str, object]:
        options = self.options
        # Present only if given, so that older runs, which lack these keys, can be resumed.
        given = {
            "caches": COLD if options.cold_cache else "",
            KERNEL_SOURCES: options.kernels.text,
            "pairs": "" if options.pairs is None else digest_of(options.pairs),
            "shard": "" if options.shard is None else str(options.shard),
        }
        return {
            "problem sets": {part.name: part.sha256 for part in self.plan.sets},
            KERNEL_SET: options.kernel_set,
            KERNEL_FILTER: options.kernel_filter or "",
            "target": self.target.name,
            "sources and toolchain": self.target.source_identity(),
            "data seed": options.data_seed,
            **{name: value for name, value in given.items() if value},
        }

    # ---- measuring --------------------------------------------------------------------------

    def select(self, pairs: Iterable[tuple[Problem, Kernel]]) -> None:
        """The pairs to run after selection, in order."""
        self._kernels_of = {}
        for problem, kernel in pairs:
            self._kernels_of.setdefault(problem.id, []).append(kernel)

    @property
    def left_s(self) -> float | None:
        """Remaining seconds of --budget; None without one."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._began

    @property
    def workers(self) -> int:
        """How many processes or devices measure at once."""
        return 1

    def with_known_failure(self, measurement: Measurement) -> Measurement:
        """Returns the measurement, with its status in the baseline if the pair failed there."""
        known = self._known.get((measurement.problem.id, measurement.kernel.name), "")
        return replace(measurement, known_failure=known) if known else measurement

    def _learn_known_failures(self, device: str) -> None:
        for choice, part in self.judged:
            baseline = baseline_for(choice, part, device, self.options, self.target) if device else None
            for problem, statuses in baseline.known_failures.items() if baseline is not None else ():
                self._known |= {(problem, kernel): status for kernel, status in statuses.items()}
            self._held |= held_of(choice, baseline, self.options)

    @abstractmethod
    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        """Measures or replays a pair.

        Raises KernelError for a kernel that is not for the problem, other HarnessErrors when nothing can
        be measured or recorded any more.
        """

    def unrecorded(self, problem: Problem, kernels: Sequence[Kernel]) -> int:
        """Returns the number of these pairs that cannot be replayed, because they were never recorded."""
        return 0

    def choose_first(self) -> First | None:
        """Returns the kernels of --first; None without it. Raises ModelError."""
        return None

    def end_first(self) -> list[str]:
        """Ends the phase of the kernels of --first; returns the verdict on them. Raises HarnessError."""
        return []

    def build_ahead(self) -> None:  # noqa: B027  most sessions build nothing
        """Starts building the kernels of the first problems in the background."""

    def builds(self) -> tuple[int, int]:
        """Returns how many kernels are built, with or without a binary, and how many are wanted."""
        return 0, 0

    def recorded_kernels(self) -> Sequence[Kernel] | None:
        """Returns the kernels that the replayed records have; None where nothing is replayed."""
        return None

    # ---- the end ----------------------------------------------------------------------------

    def records(self, run: Run) -> pd.DataFrame:
        """Returns all records of the run, texts that repeat as categoricals. Raises RecordError."""
        return load_records(run.folder, compact=True)

    def settled(self, records: pd.DataFrame) -> pd.DataFrame | None:
        """report.data.settled of the run's records, if it is known already."""
        return None

    def over_budget(self, pair: tuple[Problem, Kernel] | None) -> bool:
        """Returns whether the budget is spent and a test of this pair, None if it is of no certain one, is
        left out."""
        if self.deadline is None or time.monotonic() < self.deadline or (pair and self.goes_on(*pair)):
            return False
        self.budget_spent = True
        return True

    def goes_on(self, problem: Problem, kernel: Kernel) -> bool:
        """Returns whether a pair has a result although the time is over."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Ends what the session started and seals its records. Raises RecordError."""

    @property
    def command(self) -> CommandLine:
        """This session's own command line, to be run again with something added."""
        return CommandLine(self.options.command, replayed=not self.remeasures)

    @property
    def is_judged(self) -> bool:
        """Whether a verdict is asked for; --model none asks for none."""
        return self.options.model != NONE

    def unsealed(self) -> str:
        """Returns one line on rows that could not be sealed into a part, or "". Raises RecordError."""
        left = left_unsealed(self.run.measurements) if self.run is not None else []
        if not left:
            return ""
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return (
            f"rows could not be sealed into a part and are still in {left[0]}{more}: free or repair the "
            "disk, then --resume"
        )

    def forget_attempts(self) -> None:
        """Removes the notes of killed workers about pairs that the run has. Raises RecordError."""
        if self.run is not None:
            folder = self.run.folder
            forget_settled(
                folder,
                lambda: set(load_records(folder)[["problem", "kernel"]].itertuples(index=False, name=None)),
            )

    def forget_records(self) -> None:  # noqa: B027  most sessions hold none
        """Frees the memory of records that the session holds. `records` reads them again."""

    def release(self) -> None:
        """Release the run for other sessions."""
        if self.run is not None and self.run.lock is not None:
            self.run.lock.release()

    # ---- description ------------------------------------------------------------------------

    @abstractmethod
    def header(self) -> list[str]:
        """Lines on the target and on what is built or replayed."""

    @abstractmethod
    def settling_command(self, run: Run, suspects: Path) -> str:
        """Returns the command that measures suspects (a file for --pairs) again, quoted for a shell."""

    @property
    def notes(self) -> list[str]:
        """Notes on the kernel set, and on the builds or the replayed records."""
        return list(self.plan.notes)

    @property
    def measured_on(self) -> str:
        """The target of the measurements: in a replay the recorded one."""
        return self.target.name
