"""The candidates of each kind of problem: its pool and the model that ranks it, loaded once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tile_oracle.errors import ModelError
from tile_oracle.kernel import Kernel
from tile_oracle.model.fitting_model import ModelsFor, models_for, named_for, pool_of_model
from tile_oracle.model.store import model_places
from tile_oracle.pool import listed_pool, pool_of_kind
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.registry.machine import Machine
from tile_oracle.registry.rankers import ENGINES, Candidates, load_candidates


class Pools:
    """Candidates by kind of problem. Thread-safe."""

    def __init__(
        self,
        machine: Machine,
        kernels: str | Sequence[Kernel] | None,
        model: Path | None,
        models: Path | None,
        engine: str,
        say: Callable[[str], None],
    ) -> None:
        """say: called with the reason if a model picks in Python. The other arguments are those of
        `Registry`.

        Raises ModelError for an unknown engine.
        """
        if engine not in ENGINES:
            raise ModelError(f"engine {engine!r} is not one of {', '.join(ENGINES)}")
        self._machine = machine
        self._kernels = kernels
        self._model = model
        self._models = models
        self._engine = engine
        self._say = say
        self._lock = threading.Lock()
        self._loaded: dict[Kind, Candidates] = {}

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
                    if self._machine.target is None
                    else pool_of_kind(problem.kind, arch, self._kernels)
                )
        elif self._kernels is not None:
            kernels = [kernel for kernel in self._kernels if kernel.matches(problem)]
        models = self._found(problem.kind, kernels)
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

    def _found(self, kind: Kind, kernels: Sequence[Kernel]) -> ModelsFor:
        arch, device = self._machine.arch.name, self._machine.device_name
        if self._model is not None:
            return named_for(self._model, kind, arch, kernels)
        places = model_places(self._models, arch, self._machine.target is None)
        return models_for(kind, arch, places, kernels=kernels, device=device)
