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
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.operation import operation_named
from tile_oracle.operation.search_axes import Axes, SearchAxes
from tile_oracle.problem import Problem

_POPULATION = 24
_SCALE = 0.5
_CROSSOVER = 0.5
_MUTATION_TRIES = 20
_MOST_TRIES = 60


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


def search(
    predictor: Predictor,
    problem: Problem,
    budget: int,
    seed: int = 0,
) -> dict[str, float]:
    """Returns the predicted TFLOPS of up to `budget` distinct kernels, by name. Raises ModelError for no
    budget."""
    if budget < 1:
        raise ModelError(f"a budget of {budget} kernels leaves nothing to search: it must be at least 1")
    space = Space.of(predictor.spec.arch, problem)
    scores: dict[str, float] = {}
    random = np.random.default_rng([seed, 0])
    population = [_draw(space, random) for _ in range(_POPULATION)]
    _score(predictor, space, population, scores, budget)
    rounds, idle = 0, 0
    while len(scores) < budget and idle < _MOST_TRIES:
        before, rounds = len(scores), rounds + 1
        trials = _mutated(space, np.random.default_rng([seed, rounds]), population, scores)
        _score(predictor, space, trials, scores, budget)
        population = [
            max((member, trial), key=lambda choice: _fitness(space, scores, choice))
            for member, trial in zip(population, trials, strict=True)
        ]
        idle = idle + 1 if len(scores) == before else 0
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


def _mutated(
    space: Space, random: np.random.Generator, members: Sequence[Sequence[int]], scores: Mapping[str, float]
) -> list[list[int]]:
    """Returns one trial per member: a mutation by the difference of two others, crossed with the member.
    Repeated while the result is invalid or already scored."""
    population = [np.array(choice) for choice in members]
    sizes = np.array([len(axis) for axis in space.axes])
    best = np.array(max(members, key=lambda choice: _fitness(space, scores, choice)))
    trials = []
    for index, member in enumerate(population):
        others = [i for i in range(len(population)) if i != index]
        trial = member.tolist()
        for _ in range(_MUTATION_TRIES):
            a, b = random.choice(others, 2, replace=False)
            base = best if random.random() < 0.5 else member
            mutant = np.rint(
                base + _SCALE * (population[a] - population[b]) + random.normal(0, 0.5, len(sizes))
            )
            take = random.random(len(sizes)) < _CROSSOVER
            take[random.integers(len(sizes))] = True
            trial = np.where(take, np.mod(mutant.astype(np.int64), sizes), member).tolist()
            kernel = space.kernel(trial)
            if kernel is not None and kernel.name not in scores:
                break
        trials.append(trial)
    return trials


def _score(
    predictor: Predictor,
    space: Space,
    choices: Sequence[Sequence[int]],
    scores: dict[str, float],
    budget: int,
) -> None:
    """Scores the kernels that have no score yet, as far as the budget goes."""
    kernels = {kernel.name: kernel for choice in choices if (kernel := space.kernel(choice)) is not None}
    new = [kernel for name, kernel in kernels.items() if name not in scores][: budget - len(scores)]
    if new:
        scores.update(
            zip([one.name for one in new], predictor.predict(space.problem, new).tolist(), strict=True)
        )


def _fitness(space: Space, scores: Mapping[str, float], choice: Sequence[int]) -> float:
    kernel = space.kernel(choice)
    return scores.get(kernel.name, -1.0) if kernel is not None else -1.0
