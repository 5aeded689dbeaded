"""Kernel selection in a running program: pick a kernel, and run it."""

from tile_oracle.registry.registry import Registry
from tile_oracle.registry.results import Failed, Pick, RunResult

__all__ = ["Failed", "Pick", "Registry", "RunResult"]
