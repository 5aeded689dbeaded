"""What every session with --problem-set has: options, plan, models, run, budget."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.record.dataset_file import digest_of
from tile_oracle.record.journal import left_unsealed
from tile_oracle.record.run import Run, join_run, open_run
from tile_oracle.record.schema import COLD
from tile_oracle.session.models import NONE, ModelChoice, baseline_for, choose_model, held_picks
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import Plan, make_plan, set_name
from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET
from tile_oracle.target.base import Target


class Session(ABC):
    """Made once a process; worker processes of pytest-xdist have one each, under the controller's run.

    A LiveSession measures, a ReplaySession takes what was recorded (opening.open_session). What either needs
    to answer is abstract here. suite: the test file that runs where none is named. remeasures: suspects can
    be measured again. sources: the files that hold what is replayed.
    """

    suite: Path
    remeasures: bool
    sources: tuple[Path, ...] = ()

    def __init__(
        self,
        options: SessionOptions,
        target: Target,
        target_reason: str,
        *,
        deadline: float | None = None,
        run_folder: str | None = None,
        run_owner: str = "",
    ) -> None:
        """target_reason: why this target. deadline: when the budget ends, by the machine's monotonic clock.
        run_folder, run_owner: the controller's run, and the controller (record.owner), for a worker.

        Raises HarnessError for options that cannot be used.
        """
        self.criteria = Criteria(**options.tolerances, rule=options.rule)
        self.target, self.target_reason = target, target_reason
        self.options = options
        self.plan = self._make_plan()
        self.models: tuple[ModelChoice, ...] = tuple(
            choose_model(options, part, self.target) for part in self.plan.sets
        )
        self.deadline = deadline if deadline is not None else self._deadline()
        self.budget_spent = False
        self._began = time.monotonic()
        self._run: Run | None = None
        if run_folder:
            self._run = join_run(Path(run_folder), run_owner, resumed=options.resume)
        self._kernels_of: dict[str, list[Kernel]] = {}
        self._known: dict[tuple[str, str], str] = {}
        self._held: dict[str, str] = {}
        self._begun: set[str] = set()
        self.keep_samples = False

    def lacking(self) -> frozenset[str]:
        """Names of the candidates that the kernel source has no code of, so that no model can pick them; what
        records show besides is not among them (tile_oracle.evaluation.candidates.not_built)."""
        return frozenset()

    def _make_plan(self) -> Plan:
        return make_plan(self.options, self.target.arch, load_problem_sets(self.options.problem_set or ""))

    def _deadline(self) -> float | None:
        return None if self.options.budget_s is None else time.monotonic() + self.options.budget_s

    # ---- the run ----------------------------------------------------------------------------

    def open_run(self) -> Run:
        """The run's folder, made or found at the first call. Raises RecordError."""
        if self._run is None:
            self._run = open_run(
                self.options.report_dir,
                self._purpose(),
                stem=f"{'+'.join(part.name for part in self.plan.sets)}-{self.target.name}",
                name=self.options.run_name,
                resume=self.options.resume,
            )
        return self._run

    @property
    def run(self) -> Run | None:
        return self._run

    def describe_run(self, run: Run) -> str:
        """Where the run is, and whether it is a new one."""
        if run.resumed:
            return f"run: {run.folder} (resumed)"
        return f"run: {run.folder}" + (" (new: there is no run to resume)" if self.options.resume else "")

    def _purpose(self) -> dict[str, object]:
        # Named only where asked for, so that older runs, which do not name them, can be resumed.
        cold = {"caches": COLD} if self.options.cold_cache else {}
        listed = {} if self.options.pairs is None else {"pairs": digest_of(self.options.pairs)}
        return cold | {
            "problem sets": {part.name: part.sha256 for part in self.plan.sets},
            KERNEL_SET: self.options.kernel_set,
            KERNEL_FILTER: self.options.kernel_filter or "",
            "target": self.target.name,
            "sources and toolchain": self.target.source_identity(),
            "data seed": self.options.data_seed,
            **listed,
        }

    # ---- measuring --------------------------------------------------------------------------

    def select(self, pairs: Iterable[tuple[Problem, Kernel]]) -> None:
        """What is left to run after selection, in order."""
        self._kernels_of = {}
        for problem, kernel in pairs:
            self._kernels_of.setdefault(problem.id, []).append(kernel)

    @property
    def left_s(self) -> float | None:
        """Seconds of --budget that are left; None without one."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._began

    def _with_known_failure(self, measurement: Measurement) -> Measurement:
        known = self._known.get((measurement.problem.id, measurement.kernel.name), "")
        return replace(measurement, known_failure=known) if known else measurement

    def _learn_known_failures(self, device: str) -> None:
        for choice, part in zip(self.models, self.plan.sets, strict=True):
            baseline = baseline_for(choice, part, device, self.options, self.target) if device else None
            if baseline is not None:
                self._known |= _known_failures(baseline)
            self._held |= held_picks(choice, baseline, self.options)

    @abstractmethod
    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        """The pair's measurement.

        Raises KernelError for a kernel that is not for the problem, other HarnessErrors when nothing can
        be measured or recorded any more.
        """

    @abstractmethod
    def unrecorded(self, problem: Problem, kernels: Sequence[Kernel]) -> int:
        """How many of these pairs can have no measurement, because they were never recorded."""

    @abstractmethod
    def build_ahead(self) -> None:
        """Start to make what the first problems need, in the background."""

    @abstractmethod
    def recorded_kernels(self) -> Sequence[Kernel] | None:
        """The kernels that the replayed records have; None where nothing is replayed."""

    # ---- the end ----------------------------------------------------------------------------

    def over_budget(self, problem: Problem) -> bool:
        """Whether a test of this problem comes after the budget's end; what is begun is finished."""
        if self.deadline is None or time.monotonic() < self.deadline or problem.id in self._begun:
            return False
        self.budget_spent = True
        return True

    @abstractmethod
    def close(self, *, interrupted: bool) -> None:
        """End what the session started and seal what is recorded. Raises RecordError."""

    @property
    def is_judged(self) -> bool:
        """Whether a verdict is asked for; --model none asks for none."""
        return self.options.model != NONE

    @property
    def set_names(self) -> list[str]:
        """What the problem sets are called in reports' folders and test ids; no two alike."""
        return [set_name(part, self.plan.sets) for part in self.plan.sets]

    def unsealed(self) -> str:
        """Where rows lie that could not be made a part, in one line, or "". Raises RecordError."""
        left = left_unsealed(self._run.measurements) if self._run is not None else []
        if not left:
            return ""
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return f"rows could not be made a part and are still in {left[0]}{more}: mend the disk and --resume"

    def release(self) -> None:
        """Give the run free for other sessions."""
        if self._run is not None and self._run.lock is not None:
            self._run.lock.release()

    # ---- what is said of it -----------------------------------------------------------------

    @abstractmethod
    def header(self) -> list[str]:
        """Lines on the target and on what is built or replayed."""

    @abstractmethod
    def settle_options(self, run: Run, suspects: Path) -> list[str]:
        """The options of a command that measures suspects (a file for --pairs) again."""

    @property
    def notes(self) -> list[str]:
        """What a person should be told of the kernel set, and of the builds or of what is replayed."""
        return list(self.plan.notes)

    @property
    def measured_on(self) -> str:
        """The target whose measurements these are: in a replay the one that was recorded."""
        return self.target.name


def _known_failures(baseline: Baseline) -> dict[tuple[str, str], str]:
    return {
        (problem, kernel): status
        for problem, kernels in baseline.known_failures.items()
        for kernel, status in kernels.items()
    }
