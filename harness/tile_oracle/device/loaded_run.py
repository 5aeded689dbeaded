"""How a kernel that is loaded onto a GPU runs one problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tile_oracle.device.runtime.driver import Launch, LibraryLaunch

Launches = tuple[Launch | LibraryLaunch, ...]


@dataclass(frozen=True)
class Run:
    """How a loaded kernel runs one problem.

    workspace_bytes: size of its workspace. needs: the resources of a launch, for messages. launches: returns
    the launches, given the addresses of the operands in their order, of the output and of the workspace.
    """

    workspace_bytes: int
    needs: str
    launches: Callable[..., Launches]


def needed(threads: int, lds_bytes: int) -> str:
    """The resources of a launch in words."""
    return f"{threads} threads and {lds_bytes:,} bytes of LDS"
