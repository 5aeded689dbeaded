"""Kernel selection in a running program: pick a kernel, and run it."""

from tile_oracle.registry.registry import Failed, Pick, Registry, RunResult

__all__ = ["Failed", "Pick", "Registry", "RunResult"]
