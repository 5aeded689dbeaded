"""Sweeps of a supervisor over evil kernels: settings, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from evil_target import MODES, NOISE_ALLOWED, evil_kernel, small_problem

from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.record.schema import ROUND_SWEEP

Opener = Callable[..., Supervisor]
"""The fixture open_supervisor."""
SETTINGS = SweepSettings(
    timing=TimingPlan(budget_ms=1.0, noisy_above=NOISE_ALLOWED), final_budget_ms=0.2, final_passes=2
)
LONGER = replace(SETTINGS, timing=replace(SETTINGS.timing, budget_ms=10.0))
"""For tests that need realistic times."""
PROBLEM = small_problem()
GOOD = evil_kernel("good")
SEQUENTIAL = replace(
    SETTINGS, timing=replace(SETTINGS.timing, budget_ms=10.0, sequential=True), timeout_s=60.0
)
"""With kernels of a tenth of a second, which other work on this machine makes much longer."""


def built(supervisor: Supervisor, *kernels: GroupedConvKernel) -> list[GroupedConvKernel]:
    """The kernels, already compiled, so that they run in this order."""
    for kernel in kernels:
        supervisor.target.build(kernel).result()
    return list(kernels)


def swept(measurements: Sequence[Measurement]) -> list[tuple[str, str]]:
    return [(mode_of(m.kernel), m.status) for m in measurements if m.round == ROUND_SWEEP]


def mode_of(kernel: GroupedConvKernel) -> str:
    return next(name for name, number in MODES.items() if number == kernel.tile_m)
