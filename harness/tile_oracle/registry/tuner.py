"""Finds a problem's best kernel by measuring its pool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tile_oracle.errors import NoModelError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem
from tile_oracle.registry.kept import KeptKernels
from tile_oracle.registry.machine import Machine
from tile_oracle.registry.measuring import Budget, PoolMeasurements, measure_pool, model_free_order
from tile_oracle.registry.rankers import Candidates
from tile_oracle.registry.results import MEASURED, Pick, Tuning

LOG = "tile_oracle.registry"
"""The name of the registry's logger."""


class Tuner:
    """Measures pools on a machine, stores the best kernels, and remembers all measurements."""

    def __init__(
        self, machine: Machine, kept: KeptKernels, fallback: Budget | None, say: Callable[[str], None]
    ) -> None:
        """fallback: the measuring budget for problems without a model, None to measure nothing. say: called
        with the reason why a pool is measured."""
        self._machine = machine
        self._kept = kept
        self._fallback = fallback
        self._say = say
        self._measured: dict[Problem, PoolMeasurements] = {}

    def tune(
        self,
        problem: Problem,
        candidates: Candidates,
        budget: Budget,
        watch: Callable[[Measurement], None] | None = None,
    ) -> Tuning:
        """Measures the pool in its model's order, or without a model in `model_free_order`, and stores the
        best.

        Raises TargetError if no kernel is ok, TunedError if the result cannot be stored.
        """
        if candidates.rank is not None:
            order = [kernel for kernel, _ in candidates.rank(problem, None)]
        else:
            order = model_free_order(problem, candidates.kernels)
        return self._tune(problem, order, budget, "tune", watch)

    def measured(self, problem: Problem, candidates: Candidates) -> PoolMeasurements:
        """Returns the measurements of a problem without a model, made now unless they exist already.

        Raises NoModelError if measuring is not allowed, and what `tune` raises.
        """
        if self._machine.target is None or self._fallback is None:
            why = "without a target nothing can" if self._machine.target is None else "nothing may"
            raise NoModelError(
                f"{candidates.why}, and {why} be measured for {problem.id}: train one, or tune it"
            )
        with self._machine.turn:
            done = self._measured.get(problem)
            if done is None:
                self._say(f"{candidates.why}: the pool is measured for {problem.id}")
                order = model_free_order(problem, candidates.kernels)
                done = self._tune(problem, order, self._fallback, "fallback").measured
        return done

    def _tune(
        self,
        problem: Problem,
        order: Sequence[Kernel],
        budget: Budget,
        how: str,
        watch: Callable[[Measurement], None] | None = None,
    ) -> Tuning:
        self._machine.target_to("measure kernels")
        with self._machine.turn:
            supervisor = self._machine.supervisor()
            able = [kernel for kernel in order if self._machine.may_run(kernel, problem)]
            measured = measure_pool(supervisor, problem, able, budget, watch)
            best = measured.best
            if best is None:
                raise TargetError(_none_is_ok(measured))
            self._measured[problem] = measured
            kept = self._kept.keep(best, measured, how)
        logging.getLogger(LOG).info(
            f"{problem.id}: {best.kernel.name} is the best of {measured.measured} of {measured.pool} kernels "
            f"({best.tflops:.4g} TFLOPS, {measured.seconds:.1f} s){'; kept' if kept else ''}"
        )
        return Tuning(Pick(best.kernel, MEASURED, None, best.tflops), measured, kept)


def _none_is_ok(measured: PoolMeasurements) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(measured.statuses.items()))
    return (
        f"no kernel is ok for {measured.problem.id} among {measured.measured} of {measured.pool} that "
        f"were measured in {measured.seconds:.1f} s ({counts or 'none can run it'})"
    )
