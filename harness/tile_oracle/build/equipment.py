"""The equipment to build kernels of one architecture: kernel source, instruction set and toolchain."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tile_oracle.build.binary import Binary
from tile_oracle.build.isa import Isa, isa_for, this_cpu
from tile_oracle.build.kernel_source import KernelSource
from tile_oracle.build.native import native_source
from tile_oracle.build.prebuilt import PrebuiltKernels
from tile_oracle.build.toolchain import Toolchain
from tile_oracle.errors import BuildError


@dataclass(frozen=True)
class Equipment:
    """The result of `equip`.

    compiled_from: the sources to compile. prebuilt: the prebuilt folder of them to look in first, or None.
    toolchain: None if there is no compiler, for the reason in `why_no_toolchain`; then `prebuilt` is set.
    notes: messages to show to the user once, such as a stale folder.
    """

    compiled_from: KernelSource
    isa: Isa
    toolchain: Toolchain | None = None
    flags: tuple[str, ...] = ()
    why_no_toolchain: str = ""
    prebuilt: PrebuiltKernels | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def source(self) -> KernelSource:
        """The kernel source to ask: the prebuilt folder if there is one."""
        return self.compiled_from if self.prebuilt is None else self.prebuilt

    def find_prebuilt(self, name: str, unit: str) -> Binary | None:
        """The prebuilt binary of a kernel name and translation unit, or None.

        A damaged binary is noted, and compiled again. Raises BuildError for it when there is no compiler.
        """
        try:
            return self.source.prebuilt(name, unit)
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
    folder = PrebuiltKernels(prebuilt, own) if prebuilt is not None else None
    try:
        found = own.find_toolchain(toolchain) if isinstance(toolchain, str) else toolchain
        flags = found.flags(arch, chosen)
    except BuildError as error:
        if folder is None:
            raise
        why = folder.why_stale(chosen)
        if why is not None:
            raise BuildError(f"{folder.folder} {why}, and cannot be built again: {error}") from None
        return Equipment(own, chosen, why_no_toolchain=str(error), prebuilt=folder)
    why = None if folder is None else folder.why_stale(chosen)
    if folder is not None and why is not None:
        notes = [f"{folder.folder} {why}: its kernels are compiled again"]
        return Equipment(own, chosen, found, flags, notes=notes)
    return Equipment(own, chosen, found, flags, prebuilt=folder)
