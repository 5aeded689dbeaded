"""`Registry`: picks the kernel for a problem, by a model that is loaded once, and runs it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tile_oracle.compiling.kernel_source import NATIVE, KernelSource
from tile_oracle.compiling.source_providers import open_kernel_source
from tile_oracle.errors import BuildError, ModelError, NoModelError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.model.fitting_model import ModelsFor, models_for, named_for, pool_of_model
from tile_oracle.model.made_by import MadeBy, travel_note
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor, check_problem
from tile_oracle.model.store import model_places
from tile_oracle.pool import listed_pool, pool_of_kind
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.registry.machine import Machine
from tile_oracle.registry.operands import read_output, shared_files, taken_operands
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.targets import TargetOptions, resolve_target
from tile_oracle.targets.target import Target

if TYPE_CHECKING:
    from tile_oracle.training.training_range import TrainingRange


@dataclass(frozen=True)
class Pick:
    """A model's kernel for a problem. predicted_tflops: None if the model only orders kernels."""

    kernel: Kernel
    model: str
    predicted_tflops: float | None = None


@dataclass(frozen=True)
class Failed:
    """A picked kernel that did not run. status: one of tile_oracle.record.schema.STATUSES."""

    kernel: Kernel
    status: str
    detail: str


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run.

    output: the result in the dtype's storage format, with the shape `operand_shapes[2]` of the problem. pick:
    the kernel that ran. failed: earlier picks, which failed. cached: whether the binary was already built.
    """

    output: npt.NDArray[Any]
    pick: Pick
    failed: tuple[Failed, ...] = ()
    cached: bool = True

    @property
    def kernel(self) -> Kernel:
        return self.pick.kernel


Rank = Callable[[Problem, int | None], Sequence[tuple[Kernel, float]]]
"""The first k candidates (None: all) for a problem, best first, with their predicted TFLOPS."""

AUTO, IN_C, PYTHON = ENGINES = ("auto", "native", "python")
"""Engines that rank: native code takes microseconds, LightGBM through Python milliseconds."""


@dataclass(frozen=True)
class Candidates:
    """The pool of a kind of problem and what ranks it, None without a model, with the reason in `why`.

    model: the model folder's name, "" without one. engine: native or python. order_only: whether the
    predictions are scores, not TFLOPS. folder: the model folder. predictor: the model, if it picks in
    Python. models: what else fitted. here: what builds and runs kernels here.
    """

    kernels: tuple[Kernel, ...]
    rank: Rank | None
    model: str = ""
    engine: str = ""
    why: str = ""
    order_only: bool = False
    folder: Path | None = None
    predictor: Predictor | None = None
    models: ModelsFor | None = None
    here: MadeBy = field(default_factory=MadeBy)

    @cached_property
    def travel(self) -> str:
        """One line on how compiler and device differ from the model's, or "".

        Raises ModelError for a folder that cannot be read.
        """
        return travel_note([self.folder], self.here) if self.folder is not None and self.rank else ""

    def outside(self, problem: Problem) -> tuple[str, ...]:
        """Returns the dimensions in which the problem lies outside of the model's training.

        Empty without a model, and for one that does not name its training. Raises ModelError for a folder
        that cannot be read.
        """
        known = self._training
        return () if known is None else known.problem_outside(problem)

    def kernel_outside(self, kernel: Kernel) -> str:
        """Returns why the model's prediction for the kernel is no measured kernel's; "" when it is."""
        known = self._training
        return "" if known is None else known.kernel_outside(kernel.name)

    @cached_property
    def _training(self) -> TrainingRange | None:
        if self.folder is None or self.rank is None:
            return None
        from tile_oracle.training.training_range import TrainingRange

        return TrainingRange.of(self.folder)


def load_candidates(
    problem: Problem,
    arch: str,
    kernels: Sequence[Kernel],
    model: Path | ModelsFor,
    engine: str = AUTO,
    say: Callable[[str], None] | None = None,
) -> Candidates:
    """Loads the kernels of the problem's kind and the model that ranks them: a folder, or what was found. A
    model that was trained for something else is not an error: the result has no ranker, with the reason in
    `why`.

    engine: native, python, or auto: native if available, else python, which is reported to `say`. Raises
    ModelError for a folder that cannot be read; with `native`, also BuildError without native code.
    """
    pool = tuple(kernels)
    folder = model if isinstance(model, Path) else model.folder
    if not isinstance(model, Path) and folder is None:
        return Candidates(pool, None, why=model.why_none)
    assert folder is not None
    spec, name = read_spec(folder), folder.resolve().name
    if spec.arch != arch:
        return Candidates(pool, None, why=f"{folder} was trained for {spec.arch}, not {arch}")
    try:
        check_problem(folder, spec, problem)
    except ModelError as error:
        return Candidates(pool, None, why=str(error))
    if engine != PYTHON:
        try:
            native = NativeRanker.load(folder, pool)
            return Candidates(pool, native.rank, name, IN_C, order_only=native.orders_only, folder=folder)
        except (BuildError, ModelError, TargetError) as error:
            if engine == IN_C:
                raise
            why = str(error)
    predictor = Predictor.load(folder)
    try:
        predictor.predict(problem, pool[:1])
    except ModelError as error:
        return Candidates(pool, None, why=str(error))
    if engine != PYTHON and say is not None:
        say(f"{name} picks in Python, in milliseconds, because native code is not available: {why}")

    def by_python(problem: Problem, k: int | None) -> Sequence[tuple[Kernel, float]]:
        return predictor.rank(problem, pool)[:k]

    order_only = predictor.ranker.orders_only
    return Candidates(pool, by_python, name, PYTHON, "", order_only, folder, predictor)


_TRIES = 3
"""Kernels that a run tries at most. If this many picks fail, they probably have a common cause."""

_LOG = "tile_oracle.registry"


class Registry:
    """Picks and runs kernels on one target or, with `arch` alone, picks for an architecture that is not
    present.

    Models and pools are read once, at the first problem of a kind. Picking is thread-safe;
    runs are serialized. Use it as a context manager or call `close`, which ends the worker
    process in which kernels run.
    """

    def __init__(
        self,
        target: str | Target = "auto",
        *,
        arch: str | None = None,
        kernels: str | Sequence[Kernel] | None = None,
        model: Path | str | None = None,
        models: Path | str | None = None,
        engine: str = AUTO,
        options: TargetOptions | None = None,
        settings: SweepSettings | None = None,
    ) -> None:
        """kernels: a rule set (default, full, tiny, a .json file), or the candidates themselves; by default
        the rule set `default`, and for an architecture that is not present, without a kernel source, what
        the model was trained on. model: the folder to use for every problem; else the best founded one
        (`model.fitting_model`) in the folder `models` or among the shipped ones. engine:
        native, python, or auto (native if it can be compiled, once). options: how kernels are built, and
        their kernel source; kernels that it has no code for are not candidates.

        Raises TargetError and BuildError for a target or a kernel source that cannot be used here, RuleError
        for an unknown architecture, ModelError for an unknown engine.
        """
        options = options or TargetOptions()
        self.target: Target | None = None
        if arch is None:
            self.target = resolve_target(target, options)[0] if isinstance(target, str) else target
        elif target != "auto":
            raise TargetError("give a target, or arch for an architecture that is not at hand, not both")
        self._owns_target = self.target is not None and self.target is not target
        self.arch = arch if self.target is None else self.target.arch
        # Each distinct line once.
        self._say: Callable[[str], None] = cache(partial(logging.getLogger(_LOG).warning, "%s"))
        source = _source_elsewhere(self.target, self.arch or "", options)
        self._machine = Machine(self.target, self.arch or "", settings or SweepSettings(), source)
        if kernels is None and (self.target is not None or source is not None):
            kernels = "default"
        if engine not in ENGINES:
            raise ModelError(f"engine {engine!r} is not one of {', '.join(ENGINES)}")
        self._kernels, self._engine = kernels, engine
        self._model = None if model is None else Path(model)
        self._models = None if models is None else Path(models)
        self._lock = threading.Lock()
        self._loaded: dict[Kind, Candidates] = {}

    def select(self, problem: Problem) -> Pick:
        """Returns the kernel for a problem.

        Raises NoModelError if there is no model, ModelError for a model or a pool that cannot be used,
        TargetError if no kernel can run the problem.
        """
        return next(self._picks(problem))

    def rank(self, problem: Problem, k: int | None = None) -> list[Pick]:
        """Returns the first k picks (None: all), best first. Raises what `select` raises."""
        if k is not None and k < 1:
            raise ModelError(f"k = {k}: k must be at least 1")
        picks = self._picks(problem, k)
        return [pick for _, pick in zip(range(k), picks, strict=False)] if k is not None else list(picks)

    def _picks(self, problem: Problem, k: int | None = 1) -> Iterator[Pick]:
        """Yields distinct picks, best first, without kernels that failed on the machine; at least one.

        k: the expected number of picks (None: all), a hint; further picks are computed lazily. Raises what
        `Registry.select` raises.
        """
        candidates, found = self.candidates(problem), False
        if candidates.rank is None:
            there = "" if self.arch == "cpu" else "on such a GPU "
            tune = f"{there}`tile-oracle tune {problem.id} --target {self.arch}`"
            raise NoModelError(f"{candidates.why}: train one, or measure {tune}")
        passed = 0
        for asked in (k, None):
            ranked = candidates.rank(problem, asked)
            for kernel, tflops in ranked[passed:]:
                if self._machine.may_run(kernel, problem):
                    found = True
                    yield Pick(kernel, candidates.model, None if candidates.order_only else tflops)
            if asked is None or len(ranked) < asked:
                break
            # Rare: the first k were refused or failed. Ties keep their order.
            passed = len(ranked)
        if not found:
            raise TargetError(
                f"no kernel of the pool can run {problem.id}: {self._why_none(problem, candidates)}"
            )

    def _why_none(self, problem: Problem, candidates: Candidates) -> str:
        reasons = (self._machine.arch.problem_refusal(kernel, problem) for kernel in candidates.kernels)
        return next((reason for reason in reasons if reason is not None), "those that could have failed here")

    def candidates(self, problem: Problem) -> Candidates:
        """Returns the pool of the problem's kind, and its ranker.

        Raises ModelError for an empty pool or a model that cannot be used, RuleError for a rule set that
        cannot be read.
        """
        found = self._loaded.get(problem.kind)
        if found is None:
            with self._lock:
                found = self._loaded.get(problem.kind) or self._load(problem)
                self._loaded[problem.kind] = found
        return found

    def _load(self, problem: Problem) -> Candidates:
        arch = self._machine.arch
        kernels: Sequence[Kernel] = ()
        if isinstance(self._kernels, str):
            if self._machine.source is not None:
                kernels = self._machine.source.pool(problem.kind, self._kernels)
            else:
                kernels = (
                    # Kernels in Triton are picked; a registry that runs kernels builds none of them.
                    listed_pool(problem.kind, arch, self._kernels)
                    if self.target is None
                    else pool_of_kind(problem.kind, arch, self._kernels)
                )
        elif self._kernels is not None:
            kernels = [kernel for kernel in self._kernels if kernel.matches(problem)]
        models = self._models_for(problem.kind, kernels)
        if self._kernels is None:
            own = () if models.folder is None else pool_of_model(models.folder, problem.kind)
            kernels = own or pool_of_kind(problem.kind, self._machine.arch)
        if not kernels:
            raise ModelError(f"the pool has no kernel for {kind_text(problem.kind)} on {arch.name}")
        without_code = [self._machine.without_code(kernel) for kernel in kernels]
        if all(without_code):
            raise ModelError(
                f"the kernel source has no code for the {len(kernels)} kernels of the pool for "
                f"{kind_text(problem.kind)}: {without_code[0]}"
            )
        kernels = [kernel for kernel, why in zip(kernels, without_code, strict=True) if not why]
        loaded = load_candidates(
            problem,
            arch.name,
            kernels,
            models,
            self._engine,
            self._say,
        )
        return replace(loaded, here=self._machine.made_by, models=models)

    def _models_for(self, kind: Kind, kernels: Sequence[Kernel]) -> ModelsFor:
        arch, device = self._machine.arch.name, self._machine.device_name
        if self._model is not None:
            return named_for(self._model, kind, arch, kernels)
        places = model_places(self._models, arch, self.target is None)
        return models_for(kind, arch, places, kernels=kernels, device=device)

    def run(self, problem: Problem, *operands: npt.NDArray[Any], **named: npt.NDArray[Any]) -> RunResult:
        """Picks a kernel, builds it if necessary, and runs it once on the caller's arrays in the worker
        process.

        Operands are given by position or by name: `x, w` (forward), `dy, w` (bwd_data), `x, dy` (bwd_weight),
        `a, b` (GEMM); see registry.operands for shapes and memory layout. If a kernel does not build,
        crashes, hangs or writes out of bounds, the next pick is tried, and this registry does not pick the
        failed one for the problem again.

        Raises OperandError for arrays that do not match the problem, TargetError if no kernel runs.
        """
        self._machine.target_to("run kernels")
        first, second = taken_operands(problem, operands, named)
        failed: list[Failed] = []
        with self._machine.turn, shared_files(problem, first, second) as data:
            for _, pick in zip(range(_TRIES), self._picks(problem), strict=False):
                ended, cached = self._machine.apply(problem, pick.kernel, data)
                if ended.status == "ok":
                    return RunResult(read_output(problem, data), pick, tuple(failed), cached)
                failed.append(Failed(pick.kernel, ended.status, ended.detail))
                self._machine.exclude(pick.kernel, problem)
                what = f"{ended.status}: {ended.detail}"
                self._say(f"{pick.kernel.name} on {problem.id}: {what}; the next pick is tried")
        reasons = "; ".join(f"{one.kernel.name}: {one.status}: {one.detail}" for one in failed)
        raise TargetError(f"no kernel runs {problem.id}: {reasons[-1500:] or 'there is none'}")

    def close(self) -> None:
        """Ends the worker and, unless the target was given, its compilers. May be called twice."""
        with self._machine.turn:
            self._machine.close()
            if self.target is not None and self._owns_target:
                self.target.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _source_elsewhere(target: Target | None, arch: str, options: TargetOptions) -> KernelSource | None:
    """Returns the kernel source, unless it is the project's own. Raises BuildError."""
    if target is not None:
        source = target.builder.source if target.builder is not None else None
    else:
        source = None if options.sources[0] == NATIVE else open_kernel_source(arch, options.sources[0])
    return source if source is not None and source.implementation != NATIVE else None
