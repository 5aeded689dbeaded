"""`Registry`: picks the kernel for a problem, from a tuned result, a model or a measurement, and runs it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt

from tile_oracle.arch import load_arch
from tile_oracle.build.compiler_message import compiler_message
from tile_oracle.errors import ModelError, NoModelError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.supervisor import Applied, Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.pool import pool_for_problem
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.registry.measuring import Budget, PoolMeasurements, measure_pool, model_free_order
from tile_oracle.registry.operands import read_output, shared_files, taken_operands
from tile_oracle.registry.rankers import AUTO, ENGINES, Candidates, load_candidates
from tile_oracle.registry.tuned import Found, Surroundings, TunedEntry, TunedResults, now
from tile_oracle.target import TargetOptions, resolve_target
from tile_oracle.target.base import DataFiles, DeviceInfo, Target

_LOG = logging.getLogger("tile_oracle.registry")
_TRIES = 3
"""Kernels that a run may try: a model's picks can fail, but not all of them without a reason in common."""

FALLBACK = Budget(30.0, 64)
"""What is measured for a problem that no model fits, unless a registry is told otherwise."""

TUNED, MODEL, MEASURED = "tuned", "model", "measured"


@dataclass(frozen=True)
class Pick:
    """A kernel for a problem. source: tuned (measured before, and kept), model, or measured (just now, since
    no model fits). predicted_tflops: the model's, None without one, and of a tuned pick that was asked for
    alone; measured_tflops: None of a mere prediction.

    note: what a person should know: why no model was used, which tuned result was stale.
    """

    kernel: Kernel
    source: str
    predicted_tflops: float | None = None
    measured_tflops: float | None = None
    model: str = ""
    note: str = ""


@dataclass(frozen=True)
class Failed:
    """A kernel that was picked and did not run. status: a word of tile_oracle.record.schema.STATUSES."""

    kernel: Kernel
    status: str
    detail: str


@dataclass(frozen=True)
class RunResult:
    """output: the result's array, `operand_shapes[2]` of the problem, as the dtype is stored. pick: what ran.

    failed: kernels that were picked before it and failed. cached: whether its binary was there already.
    """

    output: npt.NDArray[Any]
    pick: Pick
    failed: tuple[Failed, ...] = ()
    cached: bool = True

    @property
    def kernel(self) -> Kernel:
        return self.pick.kernel


@dataclass(frozen=True)
class Tuning:
    """The best kernel that was measured, and all that was measured to find it. kept: whether it is on
    disk."""

    pick: Pick
    measured: PoolMeasurements
    kept: bool


@dataclass
class _State:
    """The open resources and the state of a registry."""

    supervisor: Supervisor | None = None
    device: DeviceInfo | None = None
    candidates: dict[Kind, Candidates] = field(default_factory=dict)
    measured: dict[Problem, PoolMeasurements] = field(default_factory=dict)
    tuned: dict[Problem, Found] = field(default_factory=dict)
    failed: set[tuple[Problem, Kernel]] = field(default_factory=set)
    said: set[str] = field(default_factory=set)


class Registry:
    """Answers for one target, or, with `arch` alone, picks for an architecture that is not at hand.

    Models, pools and tuned results are read once, at the first problem of a kind. Picking is safe from
    several threads; runs and measurements take turns. Use as a context manager, or call `close`: it ends the
    worker process in which kernels run.
    """

    def __init__(
        self,
        target: str | Target = "auto",
        *,
        arch: str | None = None,
        kernels: str | Sequence[Kernel] = "default",
        model: Path | str | None = None,
        models: Path | str | None = None,
        engine: str = AUTO,
        tuned: bool | Path | str = True,
        fallback: Budget | None = FALLBACK,
        options: TargetOptions | None = None,
        settings: SweepSettings | None = None,
    ) -> None:
        """`kernels`: a rule set (default, full, tiny, a .json file), or the candidates themselves. `model`:
        the folder to use for every problem; else the fitting one in the folder `models`, or a shipped one.
        `engine`: by what the model ranks: native, python, or auto: native where it can be compiled (once).
        `tuned`: the folder of tuned results, True for the usual one, False for none. `fallback`: what may
        be measured where no model fits, None for nothing. `options`: how kernels are built.

        Raises TargetError and BuildError for a target that cannot be used here, RuleError for an unknown
        architecture, ModelError for an unknown engine.
        """
        self.target: Target | None = None
        if arch is None:
            found = (
                resolve_target(target, options or TargetOptions())[0] if isinstance(target, str) else target
            )
            self.target = found
        elif target != "auto":
            raise TargetError("give a target, or arch for an architecture that is not at hand, not both")
        self._owns_target = self.target is not None and self.target is not target
        self.arch = arch if self.target is None else self.target.arch
        self._arch = load_arch(self.arch or "")
        self._kernels = kernels
        self._model = None if model is None else Path(model)
        self._models = None if models is None else Path(models)
        if engine not in ENGINES:
            raise ModelError(f"engine {engine!r} is not one of {', '.join(ENGINES)}")
        self._engine = engine
        self._budget = fallback
        self._settings = settings or SweepSettings()
        self._lock = threading.RLock()
        self._state = _State()
        self._closed = False
        self.tuned: TunedResults | None = None
        if tuned is not False and self.target is not None:
            self.tuned = TunedResults(self._arch.name, None if tuned is True else Path(tuned))
            for note in self.tuned.notes:
                self._say(note)

    # ---- picking ----------------------------------------------------------------------------

    def select(self, problem: Problem) -> Pick:
        """The kernel for a problem: its tuned one, else the model's pick; where no model fits, the best that
        is measured now.

        Raises NoModelError where no model fits and nothing may be measured, ModelError for a model or a pool
        that cannot be used, TargetError when no kernel can run the problem, or none is ok.
        """
        return next(self._picks(problem))

    def rank(self, problem: Problem, k: int | None = None) -> list[Pick]:
        """The first k picks (None: all), best first. A tuned kernel comes first; of a problem that no model
        fits, the kernels that were measured and ok. Raises what `select` raises."""
        if k is not None and k < 1:
            raise ModelError(f"k = {k}: at least one kernel must be asked for")
        picks = self._picks(problem, k)
        return [pick for _, pick in zip(range(k), picks, strict=False)] if k is not None else list(picks)

    def candidates(self, problem: Problem) -> Candidates:
        """The pool of the problem's kind and what ranks it."""
        found = self._state.candidates.get(problem.kind)
        if found is None:
            with self._lock:
                found = self._state.candidates.get(problem.kind) or self._load(problem)
                self._state.candidates[problem.kind] = found
        return found

    def _picks(self, problem: Problem, k: int | None = 1) -> Iterator[Pick]:
        """Picks, best first, none twice, none that this registry saw failing; at least one, or an error.

        `k`: how many are likely to be wanted (None: all), a hint. What comes later is found only when asked
        for.
        """
        candidates = self.candidates(problem)
        tuned = self._tuned(problem, candidates)
        first: Kernel | None = None
        if tuned.kernel is not None and tuned.entry is not None:
            first = tuned.kernel
            # For one pick the rest of the pool need not be looked at.
            predicted = None if k == 1 else self._predicted(problem, first, candidates)
            yield Pick(first, TUNED, predicted, tuned.entry.tflops, candidates.model)
        if candidates.ranker is not None:
            others = self._predictions(problem, candidates, tuned.stale, k)
        else:
            others = self._measured(problem, candidates, tuned.stale)
        found = first is not None
        for pick in others:
            if pick.kernel != first and self._may_run(pick.kernel, problem):
                found = True
                yield pick
        if not found:
            raise TargetError(
                f"no kernel of the pool can run {problem.id}: {self._why_none(problem, candidates)}"
            )

    def _predictions(
        self, problem: Problem, candidates: Candidates, note: str, k: int | None
    ) -> Iterator[Pick]:
        """The model's picks: the first k, and when they are not enough, the others."""
        assert candidates.ranker is not None
        passed = 0
        for asked in (k, None):
            ranked = candidates.ranker.rank(problem, asked)
            for kernel, tflops in ranked[passed:]:
                predicted = None if candidates.order_only else tflops
                yield Pick(kernel, MODEL, predicted, None, candidates.model, note)
            if asked is None or len(ranked) < asked:
                return
            # Seldom: those asked for were refused, tuned or failed. Equal predictions keep their order.
            passed = len(ranked)

    def _predicted(self, problem: Problem, kernel: Kernel, candidates: Candidates) -> float | None:
        if candidates.ranker is None or candidates.order_only:
            return None
        return next((tflops for one, tflops in candidates.ranker.rank(problem) if one == kernel), None)

    def _may_run(self, kernel: Kernel, problem: Problem) -> bool:
        if self._state.failed and (problem, kernel) in self._state.failed:
            return False
        return self._arch.problem_refusal(kernel, problem) is None

    def _why_none(self, problem: Problem, candidates: Candidates) -> str:
        reasons = (self._arch.problem_refusal(kernel, problem) for kernel in candidates.kernels)
        return next((reason for reason in reasons if reason is not None), "those that could have failed here")

    def _load(self, problem: Problem) -> Candidates:
        if isinstance(self._kernels, str):
            kernels: Sequence[Kernel] = pool_for_problem(problem, self._arch, self._kernels)
        else:
            kernels = [kernel for kernel in self._kernels if kernel.matches(problem)]
        if not kernels:
            raise ModelError(f"the pool has no kernel for {kind_text(problem.kind)} on {self._arch.name}")
        return load_candidates(
            problem,
            self._arch.name,
            kernels,
            self._model,
            self._models,
            self._engine,
            self._say,
            self.target.device_name if self.target is not None else "",
        )

    # ---- running ----------------------------------------------------------------------------

    def run(self, problem: Problem, *operands: npt.NDArray[Any], **named: npt.NDArray[Any]) -> RunResult:
        """Pick a kernel, build it if needed, run it once on the caller's arrays in the worker process.

        The operands in order, or by name: `x, w` (forward), `dy, w` (bwd_data), `x, dy` (bwd_weight), `a, b`
        (GEMM); registry.operands says how they lie in memory. A kernel that does not build, crashes,
        hangs or writes where it must not is passed over for the next pick, and this registry does not pick it
        for the problem again.

        Raises OperandError for arrays that do not fit, TargetError when no kernel runs.
        """
        self._require_target("run kernels")
        first, second = taken_operands(problem, operands, named)
        failed: list[Failed] = []
        with self._lock, shared_files(problem, first, second) as data:
            for _, pick in zip(range(_TRIES), self._picks(problem), strict=False):
                ended, cached = self._applied(problem, pick.kernel, data)
                if ended.status == "ok":
                    return RunResult(read_output(problem, data), pick, tuple(failed), cached)
                failed.append(Failed(pick.kernel, ended.status, ended.detail))
                self._state.failed.add((problem, pick.kernel))
                what = f"{ended.status}: {ended.detail}"
                self._say(f"{pick.kernel.name} on {problem.id}: {what}; the next pick is tried")
        reasons = "; ".join(f"{one.kernel.name}: {one.status}: {one.detail}" for one in failed)
        raise TargetError(f"no kernel runs {problem.id}: {reasons[-1500:] or 'there is none'}")

    def _applied(self, problem: Problem, kernel: Kernel, data: DataFiles) -> tuple[Applied, bool]:
        """What became of a kernel on the data, and whether its binary was there already."""
        target = self._require_target("run kernels")
        refusal = target.refusal(kernel, problem)
        if refusal is not None:
            return Applied("unsupported", refusal), True
        future = target.build(kernel)
        cached, built = future.done(), future.result()
        if built.binary is None:
            return Applied(built.status, compiler_message(built.log)), cached
        return self._supervisor().apply(problem, built.binary.path, data), cached

    # ---- measuring --------------------------------------------------------------------------

    def tune(
        self,
        problem: Problem,
        budget_s: float = 60.0,
        *,
        kernels: int | None = None,
        watch: Callable[[Measurement], None] | None = None,
    ) -> Tuning:
        """Measure the pool for at most `budget_s` seconds (what is under way is finished), at most `kernels`
        of it, and keep the best: it is the pick from now on, here and in new processes on machines like this.

        The model's order decides what is measured first, else `model_free_order`. Raises TargetError when no
        kernel is ok, TunedError when the result cannot be kept.
        """
        candidates = self.candidates(problem)
        order = (
            [kernel for kernel, _ in candidates.ranker.rank(problem)]
            if candidates.ranker is not None
            else model_free_order(problem, candidates.kernels)
        )
        return self._tune(problem, order, Budget(budget_s, kernels), "tune", watch)

    def _measured(self, problem: Problem, candidates: Candidates, stale: str) -> Iterator[Pick]:
        """The fallback: what was measured for the problem, now unless it was before."""
        if self.target is None or self._budget is None:
            why = "without a target nothing can" if self.target is None else "nothing may"
            raise NoModelError(
                f"{candidates.why}, and {why} be measured for {problem.id}: train one, or tune it"
            )
        with self._lock:
            done = self._state.measured.get(problem)
            if done is None:
                self._say(f"{candidates.why}: the pool is measured for {problem.id}")
                order = model_free_order(problem, candidates.kernels)
                done = self._tune(problem, order, self._budget, "fallback").measured
        note = (
            f"{candidates.why}; {done.measured} of {done.pool} kernels were measured in {done.seconds:.1f} s"
            + (f"; {stale}" if stale else "")
        )
        for measurement in done.ranked():
            yield Pick(measurement.kernel, MEASURED, None, measurement.tflops, "", note)

    def _tune(
        self,
        problem: Problem,
        order: Sequence[Kernel],
        budget: Budget,
        how: str,
        watch: Callable[[Measurement], None] | None = None,
    ) -> Tuning:
        self._require_target("measure kernels")
        with self._lock:
            supervisor = self._supervisor()
            able = [kernel for kernel in order if self._may_run(kernel, problem)]
            measured = measure_pool(supervisor, problem, able, budget, watch)
            best = measured.best
            if best is None:
                counts = ", ".join(f"{count} {status}" for status, count in sorted(measured.statuses.items()))
                raise TargetError(
                    f"no kernel is ok for {problem.id} among {measured.measured} of {measured.pool} that "
                    f"were measured in {measured.seconds:.1f} s ({counts or 'none can run it'})"
                )
            self._state.measured[problem] = measured
            kept = self._keep(best, measured, how)
        self._say(
            f"{problem.id}: {best.kernel.name} is the best of {measured.measured} of {measured.pool} kernels "
            f"({best.tflops:.4g} TFLOPS, {measured.seconds:.1f} s){'; kept' if kept else ''}",
            warn=False,
        )
        return Tuning(Pick(best.kernel, MEASURED, None, best.tflops), measured, kept)

    def _keep(self, best: Measurement, measured: PoolMeasurements, how: str) -> bool:
        """Whether the result is on disk now. An unsteady time is good enough to go on with, not to keep."""
        if not best.ok:
            return False
        target = self._require_target("keep results")
        binary = target.build(best.kernel).result().binary
        if self.tuned is None or binary is None:
            return False
        device = self._supervisor().open()
        entry = TunedEntry(
            problem=best.problem.id,
            kernel=best.kernel.name,
            latency_ms=best.latency_ms,
            tflops=best.tflops,
            kernels=measured.measured,
            target=target.name,
            arch=target.arch,
            device=device.name,
            driver=device.driver,
            toolchain=binary.toolchain,
            source_hash=_source_hash(target, best.kernel),
            how=how,
            time=now(),
        )
        self.tuned.add([entry])
        self._state.tuned.pop(best.problem, None)
        return True

    def _tuned(self, problem: Problem, candidates: Candidates) -> Found:
        """The problem's tuned kernel, if there is one and it holds."""
        if self.tuned is None or not self.tuned.knows(problem):
            return Found()
        found = self._state.tuned.get(problem)
        if found is None:
            with self._lock:
                found = self._state.tuned[problem] = self.tuned.find(problem, self.surroundings())
                if found.kernel is not None and found.kernel not in candidates.kernels:
                    found = Found(stale=f"the tuned kernel {found.kernel.name} is not in the pool")
                    self._state.tuned[problem] = found
            if found.stale:
                self._say(f"{problem.id}: {found.stale}; it is not used")
        if found.kernel is not None and not self._may_run(found.kernel, problem):
            return Found(stale="the tuned kernel failed")
        return found

    def surroundings(self) -> Surroundings:
        """What a tuned result must have been measured with to be used here."""
        target = self._require_target("believe tuned results")
        # A GPU's name is known to who has opened it.
        device = target.device_name or self._supervisor().open().name
        toolchain = target.builder.toolchain if target.builder is not None else None
        return Surroundings(
            target.name,
            target.arch,
            device,
            toolchain.identity if toolchain is not None else "",
            lambda kernel: _source_hash(target, kernel),
        )

    # ---- life -------------------------------------------------------------------------------

    def close(self) -> None:
        """End the worker and, unless the target was given, its compilers. Safe to call twice."""
        with self._lock:
            self._closed = True
            supervisor, self._state.supervisor = self._state.supervisor, None
            if supervisor is not None:
                supervisor.close()
            if self.target is not None and self._owns_target:
                self.target.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _supervisor(self) -> Supervisor:
        if self._closed:
            raise TargetError("the registry is closed")
        if self._state.supervisor is None:
            self._state.supervisor = Supervisor(self._require_target("start a worker"), self._settings)
        return self._state.supervisor

    def _require_target(self, what_for: str) -> Target:
        if self.target is None:
            raise TargetError(
                f"this registry only picks, for {self._arch.name}, and cannot {what_for}: give it a target"
            )
        return self.target

    def _say(self, line: str, *, warn: bool = True) -> None:
        """Logs a line once."""
        if line not in self._state.said:
            self._state.said.add(line)
            _LOG.log(logging.WARNING if warn else logging.INFO, "%s", line)


def _source_hash(target: Target, kernel: Kernel) -> str:
    """Of the kernel's binary, as it would be built now."""
    builder = target.builder
    return builder.source_hash(kernel) if builder is not None else target.source_identity()
