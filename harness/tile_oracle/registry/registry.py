"""`Registry`: picks the kernel for a problem, by a model that is loaded once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.arch import load_arch
from tile_oracle.compiling.kernel_source import CK_TILE, NATIVE, KernelSource
from tile_oracle.compiling.source_providers import open_kernel_source
from tile_oracle.errors import BuildError, KernelError, ModelError, NoModelError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.model.fitting_model import ModelsFor, models_for, named_for, pool_of_model
from tile_oracle.model.made_by import MadeBy, travel_note
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor, check_problem
from tile_oracle.model.store import model_places
from tile_oracle.pool import listed_pool, pool_of_kind
from tile_oracle.problem import Kind, Problem, kind_text
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


_LOG = "tile_oracle.registry"


class Registry:
    """Picks kernels for one target or, with `arch` alone, for an architecture that is not present.

    Models and pools are read once, at the first problem of a kind. Picking is thread-safe. Use it as a
    context manager or call `close`.
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
        source = self._source = _source_elsewhere(self.target, self.arch or "", options)
        known = load_arch(self.arch or "")
        self._limits = known.unlisted if source is not None and source.implementation == CK_TILE else known
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
        """Yields distinct picks, best first; at least one.

        k: the expected number of picks (None: all), a hint; further picks are computed lazily. Raises what
        `Registry.select` raises.
        """
        candidates, found, refused = self.candidates(problem), False, ""
        if candidates.rank is None:
            there = "" if self.arch == "cpu" else "on such a GPU "
            tune = f"{there}`tile-oracle tune {problem.id} --target {self.arch}`"
            raise NoModelError(f"{candidates.why}: train one, or measure {tune}")
        passed = 0
        for asked in (k, None):
            ranked = candidates.rank(problem, asked)
            for kernel, tflops in ranked[passed:]:
                refusal = self._refusal(kernel, problem)
                if refusal is None:
                    found = True
                    yield Pick(kernel, candidates.model, None if candidates.order_only else tflops)
                refused = refused or refusal or ""
            if asked is None or len(ranked) < asked:
                break
            # Rare: the first k were refused. Ties keep their order.
            passed = len(ranked)
        if not found:
            raise TargetError(f"no kernel of the pool can run {problem.id}: {refused}")

    def _refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Returns why the kernel source has no code of the kernel for the problem, or the architecture's
        limits forbid it; None: it can run."""
        refusal = None if self._source is None else self._source.refusal(kernel, problem)
        return self._limits.problem_refusal(kernel, problem) if refusal is None else refusal

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
        arch = self._limits
        kernels: Sequence[Kernel] = ()
        if isinstance(self._kernels, str):
            if self._source is not None:
                kernels = self._source.pool(problem.kind, self._kernels)
            else:
                kernels = (
                    # A list's kernels in Triton are picked; a target without their source builds none.
                    listed_pool(problem.kind, arch, self._kernels)
                    if self.target is None
                    else pool_of_kind(problem.kind, arch, self._kernels)
                )
        elif self._kernels is not None:
            kernels = [kernel for kernel in self._kernels if kernel.matches(problem)]
        models = self._models_for(problem.kind, kernels)
        if self._kernels is None:
            own = () if models.folder is None else pool_of_model(models.folder, problem.kind)
            kernels = own or pool_of_kind(problem.kind, arch)
        if not kernels:
            raise ModelError(f"the pool has no kernel for {kind_text(problem.kind)} on {arch.name}")
        without_code = [self._without_code(kernel) for kernel in kernels]
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
        return replace(loaded, here=self._made_by, models=models)

    def _without_code(self, kernel: Kernel) -> str:
        """Returns why the kernel source has no code for the kernel; "" when it has."""
        try:
            if self._source is not None:
                self._source.unit(kernel)
        except KernelError as error:
            return str(error)
        return ""

    @property
    def _device_name(self) -> str:
        """The device's name if it is known without opening the device, else ""."""
        return "" if self.target is None else self.target.device_name

    @property
    def _made_by(self) -> MadeBy:
        """What builds and runs kernels here, as far as it is known without opening the device."""
        builder = None if self.target is None else self.target.builder
        toolchain = None if builder is None else builder.toolchain
        return MadeBy.of_names("" if toolchain is None else toolchain.identity, self._device_name)

    def _models_for(self, kind: Kind, kernels: Sequence[Kernel]) -> ModelsFor:
        arch, device = self._limits.name, self._device_name
        if self._model is not None:
            return named_for(self._model, kind, arch, kernels)
        places = model_places(self._models, arch, self.target is None)
        return models_for(kind, arch, places, kernels=kernels, device=device)

    def close(self) -> None:
        """Ends the target's compilers, unless the target was given. May be called twice."""
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
