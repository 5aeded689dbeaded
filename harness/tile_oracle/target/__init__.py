"""Targets: where kernels run. `resolve_target` finds the one that a name means."""

from tile_oracle.target.base import TargetOptions
from tile_oracle.target.resolve import resolve_target

__all__ = ["TargetOptions", "resolve_target"]
