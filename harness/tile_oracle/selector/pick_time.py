"""Measures the time of a native pick, to weigh it against a model's size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Kind, Problem
from tile_oracle.selector import native_library
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.training.compact import PickTimer, median_pick_us


def native_picks_missing() -> str:
    """Why native picks are not available; "" if they are. Compiles the library on first use."""
    try:
        native_library.load()
    except BuildError as error:
        return str(error)
    return ""


def _native_pick_us(folder: Path, problems: Sequence[Problem], kernels: Sequence[Kernel]) -> float:
    pools: dict[Kind, NativeRanker] = {}
    for problem in problems:
        if problem.kind not in pools:
            candidates = [kernel for kernel in kernels if kernel.matches(problem)]
            pools[problem.kind] = NativeRanker.load(folder, candidates)
    return median_pick_us(
        lambda problem, _: pools[problem.kind].select(problem), [(problem, ()) for problem in problems]
    )


NATIVE_PICKS = PickTimer("native", _native_pick_us)
"""Picks by `NativeRanker`."""
