"""Searches for fast kernels by a model's predictions, beyond the measured ones.

The search space is what an architecture allows: tiles are multiples of waves and warp tiles; all pipelines,
schedulers and flags are included (tile_oracle.operation.search_axes). The strategy `random` scores a sample,
`evolution` is discrete differential evolution. Both are deterministic for a given seed, stop at a budget of
distinct kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import KernelError, ModelError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.operation import operation_named
from tile_oracle.operation.search_axes import Axes, SearchAxes
from tile_oracle.problem import Problem

STRATEGIES = ("random", "evolution")

_POPULATION = 24
_SCALE = 0.5
_CROSSOVER = 0.5
_MUTATION_TRIES = 20
_MOST_TRIES = 60


@dataclass(frozen=True)
class Found:
    """A kernel, its predicted TFLOPS, and whether the model was trained on measurements of it (None if the
    model does not record its training data)."""

    kernel: Kernel
    predicted_tflops: float
    measured: bool | None


@dataclass
class SearchState:
    """What a search has found.

    scores: kernel name -> predicted TFLOPS. population: combinations of the evolution.
    """

    scores: dict[str, float] = field(default_factory=dict)
    population: list[list[int]] = field(default_factory=list)
    rounds: int = 0


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
    strategy: str = "evolution",
    seed: int = 0,
) -> SearchState:
    """Scores up to `budget` distinct kernels. Raises ModelError for an unknown strategy, or no budget."""
    if strategy not in STRATEGIES:
        raise ModelError(f"strategy {strategy!r} is not one of {', '.join(STRATEGIES)}")
    if budget < 1:
        raise ModelError(f"a budget of {budget} kernels leaves nothing to search: it must be at least 1")
    space = Space.of(predictor.spec.arch, problem)
    state, idle = SearchState(), 0
    while len(state.scores) < budget and idle < _MOST_TRIES:
        before = len(state.scores)
        random = np.random.default_rng([seed, state.rounds])
        starting = strategy == "random" or not state.population
        choices = (
            [_draw(space, random) for _ in range(_POPULATION)] if starting else _mutated(space, random, state)
        )
        if not _score(predictor, space, choices, state, budget):
            break
        if strategy == "evolution":
            state.population = choices if starting else _survivors(space, state, choices)
        state.rounds += 1
        idle = idle + 1 if len(state.scores) == before else 0
    return state


def best_of(state: SearchState, predictor: Predictor, count: int) -> list[Found]:
    """Returns the best `count` kernels of a search, best first."""
    known = predictor.measured_kernels
    ranked = sorted(state.scores.items(), key=lambda item: (-item[1], item[0]))[:count]
    return [Found(parse_kernel_name(name), score, name in known if known else None) for name, score in ranked]


def _draw(space: Space, random: np.random.Generator) -> list[int]:
    """Returns a random valid combination; after many failed attempts any combination."""
    choice = [0] * len(space.axes)
    for _ in range(200):
        choice = [int(random.integers(len(axis))) for axis in space.axes]
        if space.kernel(choice) is not None:
            break
    return choice


def _mutated(space: Space, random: np.random.Generator, state: SearchState) -> list[list[int]]:
    """Returns one trial per member: a mutation by the difference of two others, crossed with the member.
    Repeated while the result is invalid or already scored."""
    population = [np.array(choice) for choice in state.population]
    sizes = np.array([len(axis) for axis in space.axes])
    best = np.array(max(state.population, key=lambda choice: _fitness(space, state, choice)))
    trials = []
    for index, member in enumerate(population):
        others = [i for i in range(len(population)) if i != index]
        trial = [int(value) for value in member]
        for _ in range(_MUTATION_TRIES):
            a, b = random.choice(others, 2, replace=False)
            base = best if random.random() < 0.5 else member
            mutant = np.rint(
                base + _SCALE * (population[a] - population[b]) + random.normal(0, 0.5, len(sizes))
            )
            take = random.random(len(sizes)) < _CROSSOVER
            take[random.integers(len(sizes))] = True
            values = np.where(take, np.mod(mutant.astype(np.int64), sizes), member)
            trial = [int(value) for value in values]
            kernel = space.kernel(trial)
            if kernel is not None and kernel.name not in state.scores:
                break
        trials.append(trial)
    return trials


def _survivors(space: Space, state: SearchState, trials: list[list[int]]) -> list[list[int]]:
    """Returns the better of each member and its trial."""
    return [
        trial if _fitness(space, state, trial) > _fitness(space, state, member) else member
        for member, trial in zip(state.population, trials, strict=True)
    ]


def _score(
    predictor: Predictor, space: Space, choices: Sequence[Sequence[int]], state: SearchState, budget: int
) -> bool:
    """Scores the kernels that have no score yet; returns False if the budget did not suffice for all."""
    kernels = {kernel.name: kernel for choice in choices if (kernel := space.kernel(choice)) is not None}
    new = [kernel for name, kernel in kernels.items() if name not in state.scores]
    allowed = new[: budget - len(state.scores)]
    if allowed:
        for kernel, score in zip(allowed, predictor.predict(space.problem, allowed), strict=True):
            state.scores[kernel.name] = float(score)
    return len(allowed) == len(new)


def _fitness(space: Space, state: SearchState, choice: Sequence[int]) -> float:
    kernel = space.kernel(choice)
    return state.scores.get(kernel.name, -1.0) if kernel is not None else -1.0
