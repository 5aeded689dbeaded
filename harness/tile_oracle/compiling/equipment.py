"""The equipment to build kernels of one architecture: kernel source, instruction set and toolchain."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tile_oracle.compiling.binary import Binary
from tile_oracle.compiling.isa import Isa, isa_for, this_cpu
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.compiling.native import native_source
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder
from tile_oracle.compiling.source import ABI_VERSION
from tile_oracle.compiling.toolchain import Toolchain
from tile_oracle.errors import BuildError


@dataclass(frozen=True)
class Equipment:
    """The result of `equip`.

    toolchain: None if there is no compiler, for the reason in `why_no_toolchain`; then `prebuilt` is set.
    prebuilt: the folder of the source's kernels to look in first, or None.
    notes: messages to show to the user once, such as a stale folder.
    """

    source: KernelSource
    isa: Isa
    toolchain: Toolchain | None = None
    flags: tuple[str, ...] = ()
    why_no_toolchain: str = ""
    prebuilt: PrebuiltFolder | None = None
    notes: list[str] = field(default_factory=list)

    def find_prebuilt(self, name: str, unit: str) -> Binary | None:
        """Returns the prebuilt binary of a kernel name and translation unit, or None.

        A damaged binary is noted, and compiled again. Raises BuildError for it when there is no compiler.
        """
        try:
            return None if self.prebuilt is None else self.prebuilt.find(name, unit)
        except BuildError as error:
            if self.toolchain is None:
                raise
            self.notes.append(f"{error}; the kernel is compiled again")
            return None


def equip(
    arch: str,
    toolchain: str | Toolchain = "auto",
    isa: str = "native",
    include: Path | None = None,
    prebuilt: Path | None = None,
    runs_here: bool = True,
    source: KernelSource | None = None,
) -> Equipment:
    """Finds what `Builder` needs; the arguments are the builder's.

    Raises BuildError when there is neither a toolchain nor a usable prebuilt folder, and for a folder,
    instruction set or architecture that cannot be used.
    """
    own = source if source is not None else native_source(arch, include)
    chosen = isa_for(arch, isa)
    missing = chosen.missing(this_cpu()) if runs_here else ()
    if missing:
        raise BuildError(f"this machine lacks {', '.join(missing)} of --isa {isa}: use --isa native")
    folder = None if prebuilt is None else _opened(prebuilt, own)
    why = None if folder is None else _why_stale(folder, own, chosen)
    try:
        found = own.find_toolchain(toolchain) if isinstance(toolchain, str) else toolchain
        flags = found.flags(arch, chosen)
    except BuildError as error:
        if folder is None:
            raise
        if why is not None:
            raise BuildError(f"{folder.folder} {why}, and cannot be built again: {error}") from None
        return Equipment(own, chosen, why_no_toolchain=str(error), prebuilt=folder)
    if folder is not None and why is not None:
        notes = [f"{folder.folder} {why}: its kernels are compiled again"]
        return Equipment(own, chosen, found, flags, notes=notes)
    return Equipment(own, chosen, found, flags, prebuilt=folder)


def _opened(folder: Path, source: KernelSource) -> PrebuiltFolder:
    """Returns the folder. Raises BuildError when it cannot be used for the source's architecture on this
    machine."""
    found = PrebuiltFolder(folder)
    if found.facts.arch != source.arch:
        raise BuildError(f"{folder} holds kernels for {found.facts.arch}, not {source.arch}")
    found.check_runs_on(this_cpu())
    return found


def _why_stale(folder: PrebuiltFolder, source: KernelSource, isa: Isa) -> str | None:
    """Returns why the folder's kernels differ from what would be built now, or None."""
    facts = folder.facts
    if (facts.headers, facts.abi) != (source.identity, ABI_VERSION):
        return "was built from different kernel sources"
    return None if isa.name in ("native", facts.isa) else f"was built for {facts.isa}, not {isa.name}"
