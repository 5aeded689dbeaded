"""The interface of a kernel source, which provides the code of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tile_oracle.build.binary import Binary
from tile_oracle.build.isa import Isa
from tile_oracle.build.source import Headers
from tile_oracle.build.toolchain import Toolchain
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Kind, Problem

NATIVE, CK_TILE, TRITON = "native", "ck_tile", "triton"
NOT_IN_SOURCE = "ck_tile: "
"""Prefix of the refusal when a checkout has no code of a kernel for any problem."""


class KernelSource(Protocol):
    """Says which kernels can be built for an architecture, how, and with what identity.

    implementation: the value of the records' column `implementation` (`native` for the project's own
    kernels). arch: the architecture.
    """

    @property
    def implementation(self) -> str: ...

    @property
    def arch(self) -> str: ...

    @property
    def headers(self) -> Headers:
        """The headers that are copied beside each translation unit."""

    @property
    def identity(self) -> str:
        """Hash of what determines a binary besides kernel, toolchain and flags. Part of every cache key."""

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why the source has no code of this kernel for this problem, or None."""

    def unit(self, kernel: Kernel) -> str:
        """The kernel's translation unit. Raises KernelError when the source has no code for the kernel."""

    def prebuilt(self, name: str, unit: str) -> Binary | None:
        """The prebuilt binary of a kernel name and translation unit, or None.

        Raises BuildError for a damaged binary.
        """

    def find_toolchain(self, name: str) -> Toolchain:
        """Finds a toolchain by name; auto takes the first available. Raises BuildError."""

    def check_unchanged(self) -> None:
        """Raises BuildError when files outside `headers` no longer match `identity`."""

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        """Why a newly built binary cannot be used, or None. Raises BuildError when it cannot be read."""


@runtime_checkable
class StatesLaunch(Protocol):
    """A kernel source that states what a launch depends on besides the binary's code.

    Without it, two kernels with equal binaries are not assumed to be one kernel.
    """

    def launch_identity(self, kernel: Kernel) -> str | None:
        """Equal for kernels with equal binaries that are launched alike: grid, block, LDS, arguments.

        "" where the binary determines the launch; None where it is unknown.
        """


@runtime_checkable
class PoolSource(KernelSource, Protocol):
    """A kernel source with kernels of its own, which no rule set proposes (kernel.named.NamedKernel)."""

    def pool(self, kind: Kind) -> tuple[Kernel, ...]:
        """The kernels for a kind of problem, in the order in which they run; none for an unknown kind."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of problems that it has kernels for."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user about the pool."""

    def expect(self, problems: Sequence[Problem]) -> None:
        """Announces the problems of a session, before `refusal` is asked. Raises BuildError."""

    def describe_in(self, folder: Path) -> None:
        """Adds to a prebuilt folder what opening the source from it needs. Raises BuildError."""
