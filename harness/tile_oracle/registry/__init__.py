"""Kernel selection in a running program: pick a kernel, run it, or find the best one by measuring."""

from tile_oracle.registry.measuring import Budget, PoolMeasurements, model_free_order
from tile_oracle.registry.registry import Registry
from tile_oracle.registry.results import Failed, Pick, RunResult, Tuning
from tile_oracle.registry.tuned import TunedEntry, TunedResults

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
