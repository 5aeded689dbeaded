"""From `--target NAME` to a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import TargetError
from harness.target.base import Target


@dataclass(frozen=True)
class TargetOptions:
    """How a target builds: toolchain by name or path, build folder, compilers at once, instruction set."""

    toolchain: str = "auto"
    build_dir: Path | None = None
    jobs: int | None = None
    isa: str = "native"


def _cpu(options: TargetOptions) -> Target:
    from harness.target.cpu import CpuTarget

    return CpuTarget(options)


_TARGETS: dict[str, Callable[[TargetOptions], Target]] = {"cpu": _cpu}


def resolve_target(name: str, options: TargetOptions) -> tuple[Target, str]:
    """The target, and why it was chosen. Raises TargetError for a name that is no target.

    `auto` takes what the machine has; today that is always the CPU, the one target that runs everywhere.
    """
    if name == "auto":
        return _TARGETS["cpu"](options), "auto: the CPU, the only kind of target that this version runs"
    if name not in _TARGETS:
        raise TargetError(f"--target {name!r} is not one of auto, {', '.join(_TARGETS)}")
    return _TARGETS[name](options), "as asked"
