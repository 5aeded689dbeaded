"""From `--target NAME` to a target."""

from __future__ import annotations

from collections.abc import Callable

from tile_oracle.build.kernel_source import CK_TILE
from tile_oracle.build.source_providers import find_source_provider
from tile_oracle.errors import TargetError
from tile_oracle.target.base import Target, TargetOptions
from tile_oracle.target.gpu_presence import amd_presence, nvidia_presence


def _cpu(options: TargetOptions) -> Target:
    from tile_oracle.target.cpu import CpuTarget

    return CpuTarget(options)


def _gfx950(options: TargetOptions) -> Target:
    from tile_oracle.target.gfx950 import Gfx950Target

    return Gfx950Target(options)


def _sm_90(options: TargetOptions) -> Target:
    from tile_oracle.target.sm_90 import Sm90Target

    return Sm90Target(options)


_TARGETS: dict[str, Callable[[TargetOptions], Target]] = {"gfx950": _gfx950, "sm_90": _sm_90, "cpu": _cpu}


def resolve_target(name: str, options: TargetOptions) -> tuple[Target, str]:
    """The target, and why it was chosen. Raises TargetError for a name that is no target.

    `auto` takes gfx950 when AMD's driver and runtime are present, else sm_90 when NVIDIA's are, else cpu.
    This is detected without touching a device.
    """
    if options.kernel_source:
        source = options.kernel_source.partition("=")[0]
        archs = find_source_provider(source).archs
        chosen = archs[0] if name == "auto" else name
        if chosen not in archs:
            option = "--ck-tile" if source == CK_TILE else f"--kernel-source {source}"
            raise TargetError(f"{option} is for --target {' or '.join(archs)}, not for {name}")
        return _TARGETS[chosen](options), f"kernels of {source}"
    if name == "auto":
        chosen, why = _what_there_is()
        return _TARGETS[chosen](options), f"auto: {why}"
    if name not in _TARGETS:
        raise TargetError(f"--target {name!r} is not one of auto, {', '.join(_TARGETS)}, replay")
    return _TARGETS[name](options), "as asked"


def _what_there_is() -> tuple[str, str]:
    amd = amd_presence()
    if amd.usable:
        return "gfx950", amd.why
    nvidia = nvidia_presence()
    if nvidia.usable:
        return "sm_90", nvidia.why
    return "cpu", f"the CPU ({amd.why}; {nvidia.why})"
