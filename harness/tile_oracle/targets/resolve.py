"""From `--target NAME` to a target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tile_oracle.compiling.isa import AMD_ARCHS, GPU_MACHINES
from tile_oracle.compiling.kernel_source import NATIVE, TRITON, KernelSource
from tile_oracle.compiling.prebuilt_folder import is_prebuilt_folder
from tile_oracle.compiling.source import headers_for
from tile_oracle.compiling.source_providers import find_source_provider, open_kernel_source
from tile_oracle.errors import BuildError, DeviceMissingError, NoKernelsError, TargetError
from tile_oracle.targets.base import TargetOptions
from tile_oracle.targets.cpu_info import cpu_name
from tile_oracle.targets.gpu_presence import Presence, amd_presence, nvidia_presence
from tile_oracle.targets.target import INTERPRET, Compiled, Target
from tile_oracle.terminal.did_you_mean import did_you_mean


def resolve_target(name: str, options: TargetOptions) -> tuple[Target, str]:
    """Returns the target with the sources of the options, and why it was chosen, "" for an asked
    one.

    `auto` is the architecture of the first AMD GPU with a target if AMD's driver and runtime are present,
    else sm_90 if NVIDIA's are, else cpu. No device is touched to detect them. Raises TargetError for an
    unknown name, DeviceMissingError on a machine without such a GPU, BuildError for a source or a compiler
    that cannot be used.
    """
    if name == INTERPRET:
        return _interpreter(options), "results are checked, nothing is timed"
    names = [word.partition("=")[0] for word in options.sources]
    targets = list(find_source_provider(NATIVE).archs)
    for source in names:
        archs = find_source_provider(source).archs
        if name != "auto" and name in targets and name not in archs:
            raise TargetError(f"--kernels {source} is for --target {' or '.join(archs)}, not for {name}")
        targets = [one for one in targets if one in archs] or list(archs)
    if name == "auto":
        there, why = _what_there_is()
        chosen = there if there in targets else targets[0]
        reason = f"auto: {why}" if chosen == there else f"kernels of {names[-1]}"
        if chosen != there and not options.elsewhere and _can_be_interpreted(options):
            raise DeviceMissingError(
                f"--target auto: {why}, and kernels in Triton are for GPUs: --target {INTERPRET} checks them "
                "here, right or wrong, on small problems and without times"
            )
    elif name in targets:
        chosen, reason = name, ""
    else:
        if name in GPU_MACHINES:
            headers_for(name)  # says why not
        known = ("auto", *find_source_provider(NATIVE).archs, INTERPRET, "replay")
        hint = did_you_mean(name, known)
        raise TargetError(f"--target {name[:100]!r} is not one of {', '.join(known)}{hint and '; '}{hint}")
    return open_target(chosen, options), reason


def open_target(arch: str, options: TargetOptions) -> Target:
    """Returns the target of an architecture. Raises DeviceMissingError and BuildError as `resolve_target`
    does."""
    sources = [open_kernel_source(arch, word) for word in options.sources]
    if arch == "cpu":
        return Target("cpu", "cpu", _compiled(sources, options), cpu_name())
    presence = amd_presence().of(arch) if arch in AMD_ARCHS else nvidia_presence()
    if not presence.usable and not options.elsewhere:
        raise DeviceMissingError(f"--target {arch} cannot run here: {presence.why}")
    return Target(arch, arch, _compiled(sources, options), presence=presence)


def _can_be_interpreted(options: TargetOptions) -> bool:
    """Returns whether all sources are files of kernels in Triton."""
    words = [word.partition("=") for word in options.sources]
    return all(name == TRITON and (not file or Path(file).is_file()) for name, _, file in words)


def _interpreter(options: TargetOptions) -> Target:
    """Returns the target of Triton's interpreter, with the kernels for the architecture of --isa, else for
    the first one that the files have kernels for."""
    if not all(word.partition("=")[0] == TRITON for word in options.sources):
        raise TargetError(
            f"--target {INTERPRET} runs kernels in Triton alone: --kernels FILE.py, or --kernels triton"
        )
    from tile_oracle.compiling.triton.kernel_source import open_interpreted

    archs = find_source_provider(TRITON).archs
    if options.isa != "native":
        if options.isa not in archs:
            raise TargetError(
                f"--isa {options.isa} is none of {', '.join(archs)}, for which kernels are declared"
            )
        archs = (options.isa,)
    why: list[NoKernelsError] = []
    for arch in archs:
        try:
            opened = [open_interpreted(arch, word.partition("=")[2]) for word in options.sources]
            return Target(INTERPRET, arch, _compiled(list(opened), options))
        except NoKernelsError as error:
            why.append(error)
    raise why[0]


def _compiled(sources: Sequence[KernelSource], options: TargetOptions) -> list[Compiled]:
    from tile_oracle.compiling.builder import Builder

    found: list[Compiled] = []
    for source, word in zip(sources, options.sources, strict=True):
        if found and source.kinds is None:
            raise BuildError(
                f"--kernels {word}: its kernels are those of --kernel-set: name it first, and no "
                "other such source"
            )
        folder, argument = options.build_dir, Path(word.partition("=")[2] or "/")
        if is_prebuilt_folder(argument):
            folder = argument
        elif found and folder is not None and is_prebuilt_folder(folder):
            folder = None  # it has the binaries of one source
        # --toolchain is the first source's: Triton's kernels have their own compiler.
        toolchain = "auto" if found else options.toolchain
        builder = Builder(source.arch, toolchain, folder, options.jobs, options.isa, source=source)
        found.append(Compiled(builder))
    return found


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
    """Returns the targets of AMD's GPUs, in the order of the devices; gfx950 if the driver does not report
    them."""
    if not found.archs:
        return AMD_ARCHS[:1]
    return tuple(arch for arch in dict.fromkeys(found.archs) if arch in AMD_ARCHS)
