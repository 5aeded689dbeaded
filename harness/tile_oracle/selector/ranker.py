"""The native ranker: `NativeRanker.load(folder, kernels).select(problem)`.

Its results are bit-identical to those of tile_oracle.model.predictor.Predictor. It does not need LightGBM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array
from tile_oracle.features.schemas import op_of_model
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import Kernel
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.model.predictor import check_problem
from tile_oracle.problem import Problem
from tile_oracle.selector.native_selector import NativeSelector
from tile_oracle.selector.selector_file import NativeModel, problem_fields, selector_bytes


@dataclass(frozen=True, eq=False)
class NativeRanker:
    """A loaded model with its candidates. Thread-safe.

    Every method raises ModelError for a problem of another kind than that of the model and the kernels.
    """

    folder: Path
    spec: ModelSpec
    kernels: tuple[Kernel, ...]
    orders_only: bool
    """Whether predictions only order kernels within a problem."""
    _selector: NativeSelector | None = field(repr=False)
    _values_of: Callable[[Problem], tuple[int, ...]] = field(repr=False)

    @classmethod
    def load(
        cls, folder: Path | str, kernels: Sequence[Kernel], code: CodeTable | None = None
    ) -> NativeRanker:
        """Loads the model of a folder for these candidates, which are of one kind of problem. code: facts of
        the binaries at hand, for a model that uses them (Predictor.knowing).

        Raises ModelError if the folder cannot be read, for kernels of another kind than the model's, and for
        features that native code does not support (the message names them; Predictor supports them). Raises
        BuildError if the native library cannot be built.
        """
        model = NativeModel.load(folder, code)
        selector = NativeSelector(selector_bytes(model, kernels)) if kernels else None
        values_of = attrgetter(*problem_fields(op_of_model(model.spec.op_type)))
        return cls(model.folder, model.spec, tuple(kernels), model.ranker.orders_only, selector, values_of)

    @property
    def memory_bytes(self) -> int:
        """Native memory in use, in bytes."""
        return 0 if self._selector is None else self._selector.memory_bytes

    def select(self, problem: Problem) -> Kernel:
        """Returns the pick for a problem. Raises ModelError for an empty pool."""
        ranked = self.rank(problem, 1)
        if not ranked:
            raise ModelError(f"no kernel to choose from for {problem.id}")
        return ranked[0][0]

    def rank(self, problem: Problem, k: int | None = None) -> list[tuple[Kernel, float]]:
        """Returns the `k` best kernels (None: all) with their predicted TFLOPS, best first (judge.ranking).

        Native code sorts by ln(time), and equal times by their place in the pool: where the last of `k` has
        the TFLOPS of the next one, more are asked for, and then sorted.
        """
        values = self._values(problem)
        if self._selector is None or (k is not None and k < 1):
            return []
        most = len(self.kernels)
        wanted = most if k is None else min(k, most)
        count = min(wanted + 1, most)
        while True:
            numbers, speeds = self._selector.rank(values, count)
            tflops = speeds.tolist()
            if count == most or tflops[wanted - 1] > tflops[-1]:
                break
            count = min(4 * count, most)
        kernels = [self.kernels[number] for number in numbers.tolist()]
        if any(one == other for one, other in pairwise(tflops)):
            order = best_first(tflops, [kernel.name for kernel in kernels])
            kernels, tflops = [kernels[place] for place in order], sorted(tflops, reverse=True)
        return list(zip(kernels[:wanted], tflops, strict=False))

    def log_time(self, problem: Problem) -> Array:
        """Returns predicted ln(latency in ms) of every kernel, (kernels,)."""
        values = self._values(problem)
        return np.zeros(0) if self._selector is None else self._selector.log_times(values)

    def tflops(self, problem: Problem) -> Array:
        """Returns predicted TFLOPS of every kernel, (kernels,)."""
        values = self._values(problem)
        return np.zeros(0) if self._selector is None else self._selector.tflops(values)

    def tflops_among(self, problem: Problem, kernels: Sequence[Kernel]) -> Array:
        """Returns predicted TFLOPS of some of the kernels, as if there were no others, (kernels,)."""
        values = self._values(problem)
        if self._selector is None or not kernels:
            return np.zeros(0)
        return self._selector.tflops_among(
            values, np.array([self._place[k.name] for k in kernels], dtype=np.uint32)
        )

    def knows(self, kernels: Iterable[Kernel]) -> bool:
        """Returns whether all of these are among the candidates."""
        return all(kernel.name in self._place for kernel in kernels)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {kernel.name: place for place, kernel in enumerate(self.kernels)}

    def _values(self, problem: Problem) -> tuple[int, ...]:
        first = self.kernels[0] if self.kernels else None
        if first is None or first.kind != getattr(problem, "kind", None):
            check_problem(self.folder, self.spec, problem)
            if first is not None:
                raise ModelError(f"kernel {first.name} is not a candidate for {problem.id}")
        return self._values_of(problem)
