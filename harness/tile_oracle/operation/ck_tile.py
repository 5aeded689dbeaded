"""The part of an operation for CK Tile as a kernel source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tile_oracle.compiling.ck_tile.api import CkTileApi


class CkTileUnits(Protocol):
    """Implemented by a module with these functions."""

    def unit(self, api: CkTileApi, kernel: Any) -> str:
        """Returns the kernel's translation unit. Raises KernelError when this CK Tile does not have the
        kernel."""

    def problem_refusal(self, problem: Any) -> str | None:
        """Returns why the adapted CK Tile kernels cannot compute a problem, or None."""
