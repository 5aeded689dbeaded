"""The order of a problem's picks: its tuned kernel, then the model's picks or, without a model, measured
ones."""

from __future__ import annotations

from collections.abc import Iterator

from tile_oracle.errors import TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.registry.kept import KeptKernels
from tile_oracle.registry.machine import Machine
from tile_oracle.registry.pools import Pools
from tile_oracle.registry.rankers import Candidates
from tile_oracle.registry.results import MEASURED, MODEL, TUNED, Pick
from tile_oracle.registry.tuner import Tuner


class Picker:
    """Picks kernels that can run on a machine."""

    def __init__(self, machine: Machine, pools: Pools, kept: KeptKernels, tuner: Tuner) -> None:
        self._machine = machine
        self._pools = pools
        self._kept = kept
        self._tuner = tuner

    def picks(self, problem: Problem, k: int | None = 1) -> Iterator[Pick]:
        """Yields distinct picks, best first, without kernels that failed on the machine; at least one.

        k: the expected number of picks (None: all), a hint; further picks are computed lazily. Raises what
        `Registry.select` raises.
        """
        candidates = self._pools.candidates(problem)
        tuned = self._kept.find(problem, candidates)
        first: Kernel | None = None
        if tuned.kernel is not None and tuned.entry is not None:
            first = tuned.kernel
            # For a single pick the rest of the pool is not needed.
            predicted = None if k == 1 else _predicted(problem, first, candidates)
            yield Pick(first, TUNED, predicted, tuned.entry.tflops, candidates.model)
        if candidates.rank is not None:
            others = _predictions(problem, candidates, tuned.stale, k)
        else:
            others = self._measured(problem, candidates, tuned.stale)
        found = first is not None
        for pick in others:
            if pick.kernel != first and self._machine.may_run(pick.kernel, problem):
                found = True
                yield pick
        if not found:
            raise TargetError(
                f"no kernel of the pool can run {problem.id}: {self._why_none(problem, candidates)}"
            )

    def _measured(self, problem: Problem, candidates: Candidates, stale: str) -> Iterator[Pick]:
        done = self._tuner.measured(problem, candidates)
        note = (
            f"{candidates.why}; {done.measured} of {done.pool} kernels were measured in {done.seconds:.1f} s"
            + (f"; {stale}" if stale else "")
        )
        for measurement in done.ranked():
            yield Pick(measurement.kernel, MEASURED, None, measurement.tflops, "", note)

    def _why_none(self, problem: Problem, candidates: Candidates) -> str:
        reasons = (self._machine.arch.problem_refusal(kernel, problem) for kernel in candidates.kernels)
        return next((reason for reason in reasons if reason is not None), "those that could have failed here")


def _predictions(problem: Problem, candidates: Candidates, note: str, k: int | None) -> Iterator[Pick]:
    """The model's picks: the first k, then, if more are needed, the others."""
    assert candidates.rank is not None
    passed = 0
    for asked in (k, None):
        ranked = candidates.rank(problem, asked)
        for kernel, tflops in ranked[passed:]:
            predicted = None if candidates.order_only else tflops
            yield Pick(kernel, MODEL, predicted, None, candidates.model, note)
        if asked is None or len(ranked) < asked:
            return
        # Rare: the first k were refused, tuned or failed. Ties keep their order.
        passed = len(ranked)


def _predicted(problem: Problem, kernel: Kernel, candidates: Candidates) -> float | None:
    if candidates.rank is None or candidates.order_only:
        return None
    return next((tflops for one, tflops in candidates.rank(problem, None) if one == kernel), None)
