"""Generates the translation unit that instantiates the CK Tile kernel for a kernel's fields."""

from __future__ import annotations

from tile_oracle.compiling.ck_tile.api import CkTileApi
from tile_oracle.errors import KernelError
from tile_oracle.kernel import Kernel
from tile_oracle.operation import operation_named


def source_for(api: CkTileApi, kernel: Kernel) -> str:
    """Returns the text of the kernel's translation unit.

    Raises KernelError, whose message is the reason, for a kernel that this CK Tile does not have.
    """
    made_by = operation_named(kernel.op).ck_tile
    if made_by is None:
        raise KernelError(f"{kernel.op} is not adapted from CK Tile: its descriptor needs ck_tile")
    return made_by().unit(api, kernel)
