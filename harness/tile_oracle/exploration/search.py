"""Searches for fast kernels by a model's predictions, beyond the measured ones.

The search space is what an architecture allows: tiles are multiples of waves and warp tiles; all pipelines,
schedulers and flags are included (tile_oracle.operation.search_axes). Discrete differential evolution goes
through it, deterministically for a given seed, up to a budget of distinct kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import KernelError, ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.operation import operation_named
from tile_oracle.operation.search_axes import Axes, SearchAxes
from tile_oracle.problem import Problem

_POPULATION = 24
_CROSSOVER = 0.5


@dataclass(frozen=True)
class Space:
    """All combinations of choices. A combination is one index per axis, (axes,)."""

    arch: Arch
    problem: Problem
    axes: Axes

    @classmethod
    def of(cls, arch_name: str, problem: Problem) -> Space:
        """Returns the space of an architecture for a problem's kind. Raises ModelError if it is empty."""
        arch = load_arch(arch_name)
        axes = _axes_of(problem.op).axes(arch, problem.dtype)
        if any(not axis for axis in axes):
            raise ModelError(f"{arch_name} has no kernels for {problem.dtype}: there is nothing to search")
        return cls(arch, problem, axes)

    def kernel(self, choice: Sequence[int]) -> Kernel | None:
        """Returns the kernel of a combination, None if the architecture does not allow it."""
        values = tuple(axis[index] for axis, index in zip(self.axes, choice, strict=True))
        try:
            kernel = _axes_of(self.problem.op).kernel(self.arch, self.problem, values)
        except KernelError:
            return None
        return kernel if self.why_not(kernel) is None else None

    def why_not(self, kernel: Kernel) -> str | None:
        """Returns the reason why the kernel cannot be built for the problem, None if it can."""
        return self.arch.refusal(kernel) or self.arch.problem_refusal(kernel, self.problem)


def _axes_of(op: str) -> SearchAxes:
    search = operation_named(op).search
    if search is None:
        raise ModelError(f"kernels of {op} cannot be searched: its descriptor needs search")
    return search()


def search(predictor: Predictor, problem: Problem, budget: int, seed: int = 0) -> dict[str, float]:
    """Returns the predicted TFLOPS of up to `budget` distinct kernels, by name. Raises ModelError for no
    budget."""
    from scipy.optimize import differential_evolution  # not at the top: it is slow to import

    if budget < 1:
        raise ModelError(f"a budget of {budget} kernels leaves nothing to search: it must be at least 1")
    space, random = Space.of(predictor.spec.arch, problem), np.random.default_rng(seed)
    scores: dict[str, float] = {}

    def loss(choices: Array) -> Array:
        """Returns minus the predicted TFLOPS of combinations, (axes, combinations); 0 for one that is not
        allowed, or beyond the budget."""
        kernels = [space.kernel(choice) for choice in np.rint(choices.T).astype(int).tolist()]
        new = list({one.name: one for one in kernels if one is not None and one.name not in scores}.values())
        if new := new[: budget - len(scores)]:
            predicted = predictor.predict(problem, new).tolist()
            scores.update(zip([one.name for one in new], predicted, strict=True))
        return -np.array([0.0 if one is None else scores.get(one.name, 0.0) for one in kernels])

    differential_evolution(
        loss,
        [(0, len(axis) - 1) for axis in space.axes],
        strategy="rand1bin",
        maxiter=budget,
        tol=0.0,  # it goes on while the population differs
        recombination=_CROSSOVER,
        seed=random,
        callback=lambda *_, **__: len(scores) >= budget,
        polish=False,
        init=np.array([_draw(space, random) for _ in range(_POPULATION)], dtype=np.float64),
        updating="deferred",
        integrality=np.ones(len(space.axes), dtype=bool),
        vectorized=True,
    )
    return scores


def best_of(scores: Mapping[str, float]) -> list[tuple[Kernel, float]]:
    """Returns the kernels of a search with their predicted TFLOPS, best first."""
    names = list(scores)
    order = best_first(list(scores.values()), names)
    return [(parse_kernel_name(names[place]), scores[names[place]]) for place in order]


def _draw(space: Space, random: np.random.Generator) -> list[int]:
    """Returns a random valid combination; after many failed attempts any combination."""
    choice = [0] * len(space.axes)
    for _ in range(200):
        choice = [int(random.integers(len(axis))) for axis in space.axes]
        if space.kernel(choice) is not None:
            break
    return choice
