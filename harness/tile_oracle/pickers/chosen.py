"""Pickers of other makers: asked a problem at a time, timed, mapped to the pool."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.evaluation.folder_model import without_refused
from tile_oracle.judge.picker import COLUMNS, NO_MODEL, PICKER, Origin, Picker, Pool
from tile_oracle.kernel import Kernel
from tile_oracle.pickers.picker import EXACT, NEAREST, Asked, Configuration, Distance, nearest
from tile_oracle.problem import Problem


@dataclass(frozen=True)
class Chosen(Picker):
    """The choices of another maker's picker. A first choice that the pool lacks is not replaced by the second
    one: such a problem has no pick. Candidates that no dispatcher would pick (`without_refused`) are none."""

    asked: Asked
    arch: str

    def rank(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None = None
    ) -> tuple[pd.DataFrame | None, Origin]:
        """As Picker.rank."""
        rows: list[tuple[str, str, float]] = []
        mapped: dict[str, str] = {}
        lacking: dict[str, str] = {}
        fallback, same_tile, spent_us = [], [], []
        for problem, kernels in self._pools(problems, pool, records):
            began = time.perf_counter()
            choices = self._choices(problem, kernels)
            spent_us.append(1e6 * (time.perf_counter() - began))
            found = [_in_pool(choice, kernels, maps=self.asked.maps) for choice in choices]
            if not choices:
                continue
            first = choices[0]
            if isinstance(first, Configuration) and first.fallback:
                fallback.append(problem.id)
            if found[0] is None:
                lacking[problem.id] = _text(first)
                continue
            away = found[0][1]
            if away != EXACT:
                mapped[problem.id] = _text(first)
                same_tile += [problem.id] if away[0] == 0 else []
            names = dict.fromkeys(one[0].name for one in found if one is not None)
            rows += [(problem.id, name, -float(place)) for place, name in enumerate(names)]
        origin = Origin(
            PICKER if rows else NO_MODEL,
            self.name,
            "" if rows else f"{self.name} has no choice for these problems that the pool has",
            order_only=True,
            identity=self.asked.identity,
            us_per_pick=statistics.median(spent_us) if spent_us else None,
            rule=NEAREST if mapped else "",
            mapped=mapped,
            same_tile=tuple(same_tile),
            lacking=lacking,
            fallback=tuple(fallback),
        )
        return pd.DataFrame(rows, columns=list(COLUMNS)) if rows else None, origin

    def _pools(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None
    ) -> Iterator[tuple[Problem, Sequence[Kernel]]]:
        """Yields the candidates of each problem that its dispatcher would not refuse."""
        pools = [(problem, pool(problem)) for problem in problems]
        if records is None:
            yield from pools
            return
        pairs = [(problem.id, kernel.name, 0.0) for problem, kernels in pools for kernel in kernels]
        table = pd.DataFrame(pairs, columns=list(COLUMNS))
        kept = without_refused(table, records, self.arch) if pairs else table
        able = set(zip(kept["problem"], kept["kernel"], strict=True))
        for problem, kernels in pools:
            yield problem, [kernel for kernel in kernels if (problem.id, kernel.name) in able]

    def _choices(self, problem: Problem, kernels: Sequence[Kernel]) -> Sequence[Kernel | Configuration]:
        try:
            return self.asked.pick(problem, kernels)
        except HarnessError:
            raise
        except Exception as error:  # whatever another maker's code does
            name = f"the picker {self.name} has failed on {problem.id}"
            raise ModelError(f"{name}: {type(error).__name__}: {error}") from None


def _in_pool(
    choice: Kernel | Configuration, kernels: Sequence[Kernel], *, maps: bool
) -> tuple[Kernel, Distance] | None:
    """Returns the kernel of the pool that a choice means, and how far it is from it; None where the pool
    lacks it."""
    if isinstance(choice, Configuration):
        found = nearest(choice, kernels)
        return found if found is not None and (maps or found[1] == EXACT) else None
    return (choice, EXACT) if any(kernel.name == choice.name for kernel in kernels) else None


def _text(choice: Kernel | Configuration) -> str:
    return str(choice) if isinstance(choice, Configuration) else choice.name
