"""From `--target NAME` to a target."""

from __future__ import annotations

from collections.abc import Callable

from tile_oracle.build.kernel_source import CK_TILE
from tile_oracle.build.source_providers import find_source_provider
from tile_oracle.errors import TargetError
from tile_oracle.target.base import Target, TargetOptions
from tile_oracle.target.gpu_presence import Presence, amd_presence, nvidia_presence
from tile_oracle.terminal.did_you_mean import did_you_mean

AMD_ARCHS = ("gfx950", "gfx942", "gfx90a")
"""The targets with AMD GPUs, the newest first."""


def _cpu(options: TargetOptions) -> Target:
    from tile_oracle.target.cpu import CpuTarget

    return CpuTarget(options)


def _gfx950(options: TargetOptions) -> Target:
    from tile_oracle.target.gfx950 import Gfx950Target

    return Gfx950Target(options)


def _gfx942(options: TargetOptions) -> Target:
    from tile_oracle.target.gfx942 import Gfx942Target

    return Gfx942Target(options)


def _gfx90a(options: TargetOptions) -> Target:
    from tile_oracle.target.gfx90a import Gfx90aTarget

    return Gfx90aTarget(options)


def _sm_90(options: TargetOptions) -> Target:
    from tile_oracle.target.sm_90 import Sm90Target

    return Sm90Target(options)


_TARGETS: dict[str, Callable[[TargetOptions], Target]] = {
    "gfx950": _gfx950,
    "gfx942": _gfx942,
    "gfx90a": _gfx90a,
    "sm_90": _sm_90,
    "cpu": _cpu,
}


def resolve_target(name: str, options: TargetOptions) -> tuple[Target, str]:
    """The target, and why it was chosen. Raises TargetError for an unknown name.

    `auto` is the architecture of the first AMD GPU with a target if AMD's driver and runtime are present,
    else sm_90 if NVIDIA's are, else cpu. No device is touched to detect them.
    """
    if options.kernel_source:
        source = options.kernel_source.partition("=")[0]
        archs = find_source_provider(source).archs
        chosen = _first_of(archs) if name == "auto" else name
        if chosen not in archs:
            option = "--ck-tile" if source == CK_TILE else f"--kernel-source {source}"
            raise TargetError(f"{option} is for --target {' or '.join(archs)}, not for {name}")
        return _TARGETS[chosen](options), f"kernels of {source}"
    if name == "auto":
        chosen, why = _what_there_is()
        return _TARGETS[chosen](options), f"auto: {why}"
    if name not in _TARGETS:
        known = ("auto", *_TARGETS, "replay")
        hint = did_you_mean(name, known)
        raise TargetError(f"--target {name[:100]!r} is not one of {', '.join(known)}{hint and '; '}{hint}")
    return _TARGETS[name](options), "as asked"


def _what_there_is() -> tuple[str, str]:
    amd = amd_presence()
    targets = amd_targets(amd)
    if amd.usable and targets:
        return targets[0], amd.why
    nvidia = nvidia_presence()
    if nvidia.usable:
        return "sm_90", nvidia.why
    no_target = amd.why if not amd.usable else f"{' and '.join(amd.archs)} is no target"
    return "cpu", f"the CPU ({no_target}; {nvidia.why})"


def amd_targets(found: Presence) -> tuple[str, ...]:
    """The targets of AMD's GPUs, in the order of the devices; gfx950 if the driver does not report them."""
    if not found.archs:
        return AMD_ARCHS[:1]
    return tuple(arch for arch in dict.fromkeys(found.archs) if arch in AMD_ARCHS)


def _first_of(archs: tuple[str, ...]) -> str:
    """The first of a source's architectures whose GPU is present, else the first one."""
    found, _ = _what_there_is()
    return found if found in archs else archs[0]
