"""Finds the kernel sources of `--kernels`.

A distribution provides a source through an entry point of the group `tile_oracle.kernel_sources` that names
a `SourceProvider`. It is imported only when `--kernels` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol, cast

from tile_oracle.compiling.isa import AMD_ARCHS, GPU_MACHINES, GPU_TARGETS
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


@dataclass(frozen=True)
class _Own:
    """A source of the project. place: the function that opens it, which is imported only then."""

    archs: tuple[str, ...]
    place: str

    def __call__(self, arch: str, argument: str) -> KernelSource:
        module, _, function = self.place.rpartition(".")
        source = getattr(import_module(f"tile_oracle.compiling.{module}"), function)(arch, argument)
        return cast(KernelSource, source)


_OWN: Mapping[str, SourceProvider] = {
    NATIVE: _Own((*GPU_TARGETS, "cpu"), "native.open_native"),
    CK_TILE: _Own(AMD_ARCHS, "ck_tile.kernel_source.open_ck_tile"),
    TRITON: _Own(tuple(GPU_MACHINES), "triton.kernel_source.open_triton"),
}


def open_kernel_source(arch: str, option: str) -> KernelSource:
    """Opens the source of NAME[=ARGUMENT]. Raises BuildError."""
    name, _, argument = option.partition("=")
    return find_source_provider(name)(arch, argument)


def find_source_provider(name: str) -> SourceProvider:
    """Returns the provider of the project's own kernels, of CK Tile, of Triton or of an installed
    distribution.

    Raises BuildError for an unknown name.
    """
    if name in _OWN:
        return _OWN[name]
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        known = ", ".join(sorted({*_OWN, *found.names}))
        raise BuildError(f"--kernels {name!r} is not one of {known}: install the package that provides it")
    try:
        return cast(SourceProvider, found[name].load())
    except Exception as error:
        raise BuildError(
            f"--kernels {name} cannot be loaded: {type(error).__name__}: {error}; install it again"
        ) from error
