"""The state of one pytest session with --problem-set: plan, target, run, measuring service."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tile_oracle.cores import usable_cores
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.service import MeasureService
from tile_oracle.measure.supervisor import Supervisor, SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.dataset_file import digest_of
from tile_oracle.record.journal import left_unsealed
from tile_oracle.record.run import Run, RunLog, join_run, open_run
from tile_oracle.record.schema import COLD
from tile_oracle.session.models import NONE, ModelChoice, Picks, baseline_for, choose_model, held_picks
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import Plan, as_recorded, make_plan, set_name
from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET, Recording, find_recording, replays
from tile_oracle.session.replay import Replay, kernels_outside
from tile_oracle.target import TargetOptions, resolve_target
from tile_oracle.target.base import Target
from tile_oracle.target.replay import ReplayTarget

_COLD_SAMPLES, _COLD_BATCH = 50, 10


class SweepSession:
    """Made once a process; worker processes of pytest-xdist have one each, under the controller's run."""

    def __init__(
        self,
        options: SessionOptions,
        *,
        deadline: float | None = None,
        run_folder: str | None = None,
        run_owner: str = "",
    ) -> None:
        """deadline: when the budget ends, by the machine's monotonic clock. run_folder, run_owner: the
        controller's run, and the controller (tile_oracle.record.owner), for a worker.

        Raises HarnessError for options that cannot be used.
        """
        self.criteria = Criteria(**options.tolerances, rule=options.rule)
        self.replay: Replay | None = None
        self.target: Target
        if replays(options):
            recording = find_recording(options)
            options = _as_recorded(options, recording)
            self.replay = Replay(recording)
            self.target, self.target_reason = _replay_target(recording), recording.why
        else:
            self.target, self.target_reason = resolve_target(
                options.target,
                TargetOptions(
                    options.toolchain,
                    options.build_dir,
                    _build_jobs(options),
                    options.isa,
                    options.kernel_source,
                ),
            )
        self.options = options
        self.plan: Plan = make_plan(options, self.target.arch)
        if self.replay is not None:
            if not options.kernel_set_asked:
                self.plan = as_recorded(self.plan, self.replay.recording.kernels(), options.kernel_filter)
            pool = [kernel for kernels in self.plan.pools.values() for kernel in kernels]
            for part in self.plan.sets:
                self.replay.recording.check(part, pool)
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
        self._supervisor: Supervisor | None = None
        self._service: MeasureService | None = None
        self._log: RunLog | None = None
        self._known: dict[tuple[str, str], str] = {}
        self._held: dict[str, str] = {}
        self._begun: set[str] = set()
        self.keep_samples = False

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
        # Named only where asked for, so that runs of before there was a choice can be resumed.
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

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        """The pair's measurement: made now, taken from the problem's sweep, or from the resumed run.

        Raises KernelError for a kernel that is not for the problem, other HarnessErrors when nothing can
        be measured or recorded any more.
        """
        if self.replay is not None:
            return self.replayed(problem, (kernel,))[0]
        if self._service is None:
            self._service = self._open_service()
        measurement = self._service.measure(problem, kernel)
        self._begun.add(problem.id)
        return self._with_known_failure(measurement)

    def replayed(self, problem: Problem, kernels: Iterable[Kernel]) -> list[Measurement]:
        """The recorded measurements of these kernels, of a replay. Raises HarnessError."""
        assert self.replay is not None
        if not self._begun:
            self._learn_known_failures(self.replay.recording.device)
        self._begun.add(problem.id)
        return [self._with_known_failure(one) for one in self.replay.measure_all(problem, kernels)]

    def remeasure(self, problem: Problem, timed: Sequence[Measurement], round_: int) -> None:
        """Time kernels of earlier measurements again in turn, as rows of that round. Raises HarnessError."""
        if self._service is None:
            self._service = self._open_service()
        self._service.remeasure(problem, timed, round_)

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

    @cached_property
    def _settings(self) -> SweepSettings:
        timing = TimingPlan(budget_ms=1000 * self.options.kernel_budget_s, exact_samples=self.options.samples)
        settings = SweepSettings()
        if self.options.cold_cache:
            # Flushing takes far longer than a short kernel, and is not in its budget.
            timing = replace(timing, max_samples=_COLD_SAMPLES, max_batch=_COLD_BATCH)
            settings = replace(settings, final_samples=_COLD_BATCH)
        return replace(
            settings,
            timing=timing,
            seed=self.options.data_seed,
            timeout_s=self.options.kernel_timeout_s,
            final_budget_ms=timing.budget_ms / 5,
            cold_cache=self.options.cold_cache,
        )

    def _open_service(self) -> MeasureService:
        run = self.open_run()
        who = os.environ.get("PYTEST_XDIST_WORKER", "main")
        writer = f"{who}-{os.getpid()}-{time.time_ns() // 1_000_000 % 10**9}"
        self._log = RunLog(run, writer)
        self._supervisor = Supervisor(self.target, self._settings, run.measurements)
        device = self._supervisor.open()
        self._learn_known_failures(device.name)
        return MeasureService(
            self._supervisor,
            self._planned,
            self._log,
            keep_samples=self.keep_samples,
            picks=Picks(self.models, self.plan, self._held).of,
        )

    def _planned(self, problem: Problem) -> Sequence[Kernel]:
        return self._kernels_of.get(problem.id, ())

    def build_ahead(self) -> None:
        """Start compiling what the first problems need; the compilers run in the background."""
        if self.replay is not None:
            return
        started = set()
        for problem_id, kernels in self._kernels_of.items():
            problem = problem_from_id(problem_id)
            if problem.kind in started:
                continue
            started.add(problem.kind)
            for kernel in kernels:
                if self.target.refusal(kernel, problem) is None:
                    self.target.build(kernel)

    # ---- the end ----------------------------------------------------------------------------

    def over_budget(self, problem: Problem) -> bool:
        """Whether a test of this problem comes after the budget's end; what is begun is finished."""
        if self.deadline is None or time.monotonic() < self.deadline or problem.id in self._begun:
            return False
        self.budget_spent = True
        return True

    def close(self, *, interrupted: bool) -> None:
        """Stop the worker and the compilers and seal what is recorded. Raises RecordError."""
        if self._service is not None and interrupted:
            self._service.abandon()
        try:
            # First, so that a kill while the rest closes leaves nothing that only a reader would seal.
            if self._log is not None:
                log, self._log = self._log, None
                log.close()
            if self.replay is not None and self._run is not None:
                self.replay.write(self._run)
        finally:
            if self._supervisor is not None:
                self._supervisor.close()
            self.target.close()

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

    def describe_build(self) -> str:
        """Compiler and instruction set, for the header."""
        if self.replay is not None:
            return "nothing is built or measured"
        return self.target.builder.describe() if self.target.builder is not None else "prebuilt kernels"

    @property
    def notes(self) -> list[str]:
        """What a person should be told of the kernel set, and of the builds or of what is replayed."""
        if self.replay is not None:
            return [*self.plan.notes, *self._replay_notes]
        return [*self.plan.notes, *(self.target.builder.notes if self.target.builder is not None else ())]

    @cached_property
    def _replay_notes(self) -> list[str]:
        assert self.replay is not None
        outside = kernels_outside(self.replay.recording, self.plan.pools.values())
        if not outside:
            return []
        more = f" and {len(outside) - 1:,} more" if len(outside) > 1 else ""
        return [
            f"{len(outside):,} recorded kernels are no candidates in --kernel-set {self.options.kernel_set} "
            f"and were left out: {outside[0]}{more}"
        ]

    @property
    def measured_on(self) -> str:
        """The target whose measurements these are: in a replay the one that was recorded."""
        return self.replay.recording.target if self.replay is not None else self.target.name


def _replay_target(recording: Recording) -> ReplayTarget:
    return ReplayTarget(recording.arch, recording.digest, recording.device)


def _as_recorded(options: SessionOptions, recording: Recording) -> SessionOptions:
    """Without another wish the candidates of a replay are those that were measured."""
    if options.kernel_set_asked or not recording.kernel_set:
        return options
    recorded_filter = recording.kernel_filter or None
    return replace(
        options, kernel_set=recording.kernel_set, kernel_filter=options.kernel_filter or recorded_filter
    )


def _known_failures(baseline: Baseline) -> dict[tuple[str, str], str]:
    return {
        (problem, kernel): status
        for problem, kernels in baseline.known_failures.items()
        for kernel, status in kernels.items()
    }


def _build_jobs(options: SessionOptions) -> int | None:
    """Compilers at once in this process: pytest-xdist's workers share the machine's cores."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if options.build_jobs is not None or workers == 1:
        return options.build_jobs
    return max(1, (usable_cores() - 1) // workers)
