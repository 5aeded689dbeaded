"""Targets: where kernels run. `resolve_target` turns a name into a target."""

from tile_oracle.targets.base import TargetOptions
from tile_oracle.targets.resolve import resolve_target

__all__ = ["TargetOptions", "resolve_target"]
