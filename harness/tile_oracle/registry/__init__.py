"""Kernel selection in a running program."""

from tile_oracle.registry.registry import Pick, Registry

__all__ = ["Pick", "Registry"]
