"""Rankers of a pool: a model and its candidates, loaded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.errors import BuildError, ModelError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.model.fitting_model import ModelsFor
from tile_oracle.model.made_by import MadeBy, travel_note
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor, check_problem
from tile_oracle.problem import Problem
from tile_oracle.selector.ranker import NativeRanker

if TYPE_CHECKING:
    from tile_oracle.training.training_range import TrainingRange


Rank = Callable[[Problem, int | None], Sequence[tuple[Kernel, float]]]
"""The first k candidates (None: all) for a problem, best first, with their predicted TFLOPS."""

AUTO, NATIVE, PYTHON = ENGINES = ("auto", "native", "python")
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
            return Candidates(pool, native.rank, name, NATIVE, order_only=native.orders_only, folder=folder)
        except (BuildError, ModelError, TargetError) as error:
            if engine == NATIVE:
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
