"""Finds the kernel source of `--kernel-source`.

A distribution provides a source through an entry point of the group `tile_oracle.kernel_sources` that names
a `SourceProvider`. It is imported only when `--kernel-source` names it.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

from tile_oracle.build.kernel_source import CK_TILE, NATIVE, TRITON, KernelSource
from tile_oracle.errors import BuildError

ENTRY_POINTS = "tile_oracle.kernel_sources"
"""The entry point group."""


class SourceProvider(Protocol):
    """Opens a kernel source.

    archs: the architectures that it has kernels for. `--target auto` means the first.
    """

    @property
    def archs(self) -> tuple[str, ...]: ...

    def __call__(self, arch: str, argument: str) -> KernelSource:
        """`argument`: ARGUMENT of `--kernel-source NAME=ARGUMENT`. Raises BuildError."""


def kernel_source_option(given: str | None, ck_tile: Path | None, kernels: str | None = None) -> str:
    """NAME[=ARGUMENT] of `--kernel-source`, or of its forms for CK Tile (`--ck-tile DIR`) and for Triton
    (`--kernels FILE`); else `native`.

    Raises BuildError when several are given.
    """
    options = {
        "--kernel-source": given or "",
        "--ck-tile": "" if ck_tile is None else f"{CK_TILE}={ck_tile}",
        "--kernels": "" if kernels is None else kernels_option(kernels),
    }
    there = [name for name, value in options.items() if value]
    if len(there) > 1:
        raise BuildError(f"{there[0]} and {there[1]} exclude each other: leave one out")
    return next(filter(None, options.values()), NATIVE)


def kernels_option(kernels: str) -> str:
    """The kernel source of `--kernels`: `triton` for the Triton kernels that ship, else a file or folder."""
    return TRITON if kernels == TRITON else f"{TRITON}={kernels}"


def open_kernel_source(arch: str, option: str) -> KernelSource:
    """Opens the source of NAME[=ARGUMENT]. Raises BuildError."""
    name, _, argument = option.partition("=")
    return find_source_provider(name)(arch, argument)


def find_source_provider(name: str) -> SourceProvider:
    """The provider of the project's own kernels, of CK Tile, of Triton or of an installed distribution.

    Raises BuildError for an unknown name.
    """
    if name == NATIVE:
        from tile_oracle.build.native import open_native

        return open_native
    if name == CK_TILE:
        from tile_oracle.build.ck_tile.kernel_source import open_ck_tile

        return open_ck_tile
    if name == TRITON:
        from tile_oracle.build.triton.kernel_source import open_triton

        return open_triton
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        known = ", ".join(sorted({CK_TILE, TRITON, *found.names}))
        raise BuildError(
            f"--kernel-source {name!r} is not one of {known}: install the package that provides it"
        )
    try:
        return cast(SourceProvider, found[name].load())
    except Exception as error:
        raise BuildError(
            f"--kernel-source {name} cannot be loaded: {type(error).__name__}: {error}; install it again"
        ) from error
