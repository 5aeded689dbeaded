"""A kernel that is loaded onto a GPU, and how it runs one problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tile_oracle.device.runtime.driver import Launch, LibraryLaunch
from tile_oracle.problem import Problem

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
    """Returns the resources of a launch in words."""
    return f"{threads} threads and {lds_bytes:,} bytes of LDS"


class LoadedKernel(ABC):
    """One loaded binary."""

    @abstractmethod
    def plan(self, problem: Problem) -> Run:
        """Returns how the kernel runs the problem. Raises Unlaunchable with the reason when it cannot."""

    def facts(self) -> Mapping[str, int]:
        """Returns the driver's facts about the kernel, if any. Raises RuntimeFailure, RuntimeMissing."""
        return {}

    def unload(self) -> None:
        """Free its memory. A library stays loaded: kernels of the same library share it."""
        return
