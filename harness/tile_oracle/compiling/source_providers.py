"""Finds the kernel sources of `--kernels`.

A distribution provides a source through an entry point of the group `tile_oracle.kernel_sources` that names
a `SourceProvider`. It is imported only when `--kernels` names it.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Protocol, cast

from tile_oracle.compiling.kernel_source import CK_TILE, NATIVE, TRITON, KernelSource
from tile_oracle.errors import BuildError

ENTRY_POINTS = "tile_oracle.kernel_sources"
"""The entry point group."""


class SourceProvider(Protocol):
    """Opens a kernel source.

    archs: the architectures that it has kernels for. `--target auto` means one of them.
    """

    @property
    def archs(self) -> tuple[str, ...]: ...

    def __call__(self, arch: str, argument: str) -> KernelSource:
        """`argument`: ARGUMENT of `--kernels NAME=ARGUMENT`. Raises BuildError."""


def open_kernel_source(arch: str, option: str) -> KernelSource:
    """Opens the source of NAME[=ARGUMENT]. Raises BuildError."""
    name, _, argument = option.partition("=")
    return find_source_provider(name)(arch, argument)


def find_source_provider(name: str) -> SourceProvider:
    """The provider of the project's own kernels, of CK Tile, of Triton or of an installed distribution.

    Raises BuildError for an unknown name.
    """
    if name == NATIVE:
        from tile_oracle.compiling.native import open_native

        return open_native
    if name == CK_TILE:
        from tile_oracle.compiling.ck_tile.kernel_source import open_ck_tile

        return open_ck_tile
    if name == TRITON:
        from tile_oracle.compiling.triton.kernel_source import open_triton

        return open_triton
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        known = ", ".join(sorted({NATIVE, CK_TILE, TRITON, *found.names}))
        raise BuildError(f"--kernels {name!r} is not one of {known}: install the package that provides it")
    try:
        return cast(SourceProvider, found[name].load())
    except Exception as error:
        raise BuildError(
            f"--kernels {name} cannot be loaded: {type(error).__name__}: {error}; install it again"
        ) from error
