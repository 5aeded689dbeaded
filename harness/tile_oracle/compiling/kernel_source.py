"""The interface of a kernel source, which provides kernels and their code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path

from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.source import Headers
from tile_oracle.compiling.toolchain import Toolchain
from tile_oracle.kernel import Kernel
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind, Problem

NATIVE, CK_TILE, TRITON = "native", "ck_tile", "triton"
NOT_IN_SOURCE = "ck_tile: "
"""Prefix of the refusal when a checkout has no code of a kernel for any problem."""


class KernelSource(ABC):
    """Says which kernels can be built for an architecture, how, and with what identity."""

    arch: str
    headers: Headers
    """The headers that are copied beside each translation unit."""
    implementation: str
    """The value of the records' column `implementation`: `native` for the project's own kernels."""

    @property
    def identity(self) -> str:
        """Hash of what determines a binary besides kernel, toolchain and flags. Part of every cache key."""
        return self.headers.digest

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Returns why the source has no code of this kernel for this problem, or None."""
        return None

    @abstractmethod
    def unit(self, kernel: Kernel) -> str:
        """Returns the kernel's translation unit. Raises KernelError when the source has no code for the
        kernel."""

    @abstractmethod
    def find_toolchain(self, name: str) -> Toolchain:
        """Finds a toolchain by name; auto takes the first available. Raises BuildError."""

    def check_unchanged(self) -> None:
        """Raises BuildError when files outside `headers` no longer match `identity`."""
        return

    @abstractmethod
    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        """Returns why a newly built binary cannot be used, or None. Raises BuildError when it cannot be
        read."""

    def launch_identity(self, kernel: Kernel) -> str | None:
        """Equal for kernels with equal binaries that are launched alike: grid, block, LDS, arguments.

        "" where the binary determines the launch. None where it is unknown: then two kernels with equal
        binaries are not assumed to be one kernel.
        """
        return None

    def pool(self, kind: Kind, rules: str = "default") -> tuple[Kernel, ...]:
        """Returns the kernels for a kind of problem, in the order in which they run.

        rules: the kernel set (tile_oracle.pool.rules_of), which proposes them; a list narrows the kernels
        that a source has of its own. Raises RuleError.
        """
        return pool_of_kind(kind, arch=self.arch, rules=rules)

    @property
    def kinds(self) -> tuple[Kind, ...] | None:
        """The kinds of problems that it has kernels for; None: its kernels are those of a rule set."""
        return None

    def notes_on(self, operations: Collection[str]) -> tuple[str, ...]:
        """Returns messages for the user about the kernels of operations."""
        return ()

    def expect(self, problems: Sequence[Problem]) -> None:
        """Announces the problems of a session, before `refusal` is asked. Raises BuildError."""
        return

    def describe_in(self, folder: Path) -> None:
        """Adds to a prebuilt folder what opening the source from it needs. Raises BuildError."""
        return
