"""Kernel sources: where kernels come from, and how somebody else's are found.

A distribution offers a source through an entry point of the group `tile_oracle.kernel_sources`, which names
a `SourceProvider`. It is imported when `--kernel-source` asks for it, and not before.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

from tile_oracle.build.binary import Binary
from tile_oracle.build.isa import Isa
from tile_oracle.build.source import Headers
from tile_oracle.build.toolchain import Toolchain
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

ENTRY_POINTS = "tile_oracle.kernel_sources"
NATIVE, CK_TILE = "native", "ck_tile"
NOT_IN_SOURCE = "ck_tile: "
"""How the reason begins why a checkout has no code of a kernel, whatever the problem is."""


class KernelSource(Protocol):
    """What can be built, for which architecture, how, and with what identity.

    implementation: what records say of its kernels (`native` are our own). arch: the architecture.
    """

    @property
    def implementation(self) -> str: ...

    @property
    def arch(self) -> str: ...

    @property
    def headers(self) -> Headers:
        """What is put beside each translation unit."""

    @property
    def identity(self) -> str:
        """Hash of what decides the binaries besides kernel, toolchain and flags. Part of every cache key."""

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why the source has no code of this kernel for this problem, or None."""

    def unit(self, kernel: Kernel) -> str:
        """The kernel's translation unit. Raises KernelError for a kernel that there is no code for."""

    def prebuilt(self, name: str, unit: str) -> Binary | None:
        """The binary of a name and its translation unit, if no compiler is needed. Raises BuildError for
        a binary that is damaged."""

    def find_toolchain(self, name: str) -> Toolchain:
        """The toolchain that the user asks for by this name (auto: any). Raises BuildError."""

    def check_unchanged(self) -> None:
        """Raises BuildError when files outside `headers` are not what `identity` says any more."""

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        """Why a fresh binary cannot be used, or None. Raises BuildError for one that cannot be read."""


class SourceProvider(Protocol):
    """Opens a kernel source.

    archs: the architectures that it has kernels for; the first is what `--target auto` means.
    """

    @property
    def archs(self) -> tuple[str, ...]: ...

    def __call__(self, arch: str, argument: str) -> KernelSource:
        """`argument`: what follows the `=` of `--kernel-source NAME=ARGUMENT`. Raises BuildError."""


def kernel_source_option(given: str | None, ck_tile: Path | None) -> str:
    """NAME[=ARGUMENT] of `--kernel-source` and `--ck-tile DIR`, its older spelling for CK Tile; "" for ours.

    Raises BuildError when both are given.
    """
    if given and ck_tile is not None:
        raise BuildError("--kernel-source and --ck-tile exclude each other: leave one out")
    return given or (f"{CK_TILE}={ck_tile}" if ck_tile is not None else "")


def open_kernel_source(arch: str, option: str) -> KernelSource | None:
    """The source that NAME[=ARGUMENT] means; None for "", our own kernels. Raises BuildError."""
    name, _, argument = option.partition("=")
    return find_source_provider(name)(arch, argument) if option else None


def find_source_provider(name: str) -> SourceProvider:
    """CK Tile's, or that of an installed distribution. Raises BuildError for a name that nobody offers."""
    if name == CK_TILE:
        from tile_oracle.build.ck_tile.kernel_source import open_ck_tile

        return open_ck_tile
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        known = ", ".join(sorted({CK_TILE, *found.names}))
        raise BuildError(f"--kernel-source {name!r} is not one of {known}: install what offers it")
    try:
        return cast(SourceProvider, found[name].load())
    except Exception as error:
        raise BuildError(
            f"--kernel-source {name} cannot be loaded: {type(error).__name__}: {error}; install it again"
        ) from error
