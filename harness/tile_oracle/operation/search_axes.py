"""The kernels of an operation as combinations of choices, for a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tile_oracle.arch import Arch
    from tile_oracle.kernel import Kernel

Axes = tuple[tuple[Any, ...], ...]
"""The choices along each axis."""

MULTIPLES = (1, 2, 4, 8)
"""Tile sizes along M and N, as multiples of waves x warp tile."""
FLAG = (False, True)
_DEPTHS = (1, 2, 4, 8)
_DEPTHS_OF_SINGLE_STEPS = (16, 32, 64, 128, 256, 512)


class SearchAxes(Protocol):
    """Implemented by a module with these functions."""

    def axes(self, arch: Arch, dtype: str) -> Axes:
        """Returns the axes for a data type."""

    def kernel(self, arch: Arch, problem: Any, values: tuple[Any, ...]) -> Kernel:
        """Returns the kernel for one value per axis. Raises KernelError when there is none."""


def tile_of(waves: Sequence[int], warp_tile: Sequence[int], multiples: Sequence[int]) -> tuple[int, int, int]:
    """Returns the tile in which each wave has `multiples` warp tiles along each axis."""
    m, n, k = (wave * warp * more for wave, warp, more in zip(waves, warp_tile, multiples, strict=True))
    return m, n, k


def sizes(**triples: Sequence[int]) -> dict[str, Any]:
    """tile=(16, 64, 64) as the fields tile_m, tile_n, tile_k."""
    return {
        f"{name}_{axis}": size
        for name, triple in triples.items()
        for axis, size in zip("mnk", triple, strict=True)
    }


def depths(arch: Arch, dtype: str) -> tuple[int, ...]:
    """Possible depths of a tile in warp tiles; larger where a warp tile is one element deep (cpu)."""
    single = all(warp_tile[2] == 1 for warp_tile in arch.warp_tiles.get(dtype, ()))
    return _DEPTHS_OF_SINGLE_STEPS if single else _DEPTHS
