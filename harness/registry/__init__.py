"""Kernels for problems, in a running program: pick one, run it, or find the best by measuring."""

from harness.registry.measuring import Budget, PoolMeasurements, model_free_order
from harness.registry.registry import Failed, Pick, Registry, RunResult, Tuning
from harness.registry.tuned import TunedEntry, TunedResults

__all__ = [
    "Budget",
    "Failed",
    "Pick",
    "PoolMeasurements",
    "Registry",
    "RunResult",
    "TunedEntry",
    "TunedResults",
    "Tuning",
    "model_free_order",
]
