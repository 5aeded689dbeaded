"""What an operation adds to CK Tile as a kernel source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tile_oracle.build.ck_tile.api import CkTileApi


class CkTileUnits(Protocol):
    """A module with these functions is one."""

    def unit(self, api: CkTileApi, kernel: Any) -> str:
        """The kernel's translation unit. Raises KernelError for a kernel that this CK Tile does not have."""

    def problem_refusal(self, problem: Any) -> str | None:
        """Why CK Tile's kernels as adapted do not compute a problem, or None."""
