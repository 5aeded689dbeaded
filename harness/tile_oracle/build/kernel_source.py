"""What a kernel source is: where kernels come from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tile_oracle.build.binary import Binary
from tile_oracle.build.isa import Isa
from tile_oracle.build.source import Headers
from tile_oracle.build.toolchain import Toolchain
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

NATIVE, CK_TILE = "native", "ck_tile"
NOT_IN_SOURCE = "ck_tile: "
"""How the reason begins why a checkout has no code of a kernel, whatever the problem is."""


class KernelSource(Protocol):
    """What can be built, for which architecture, how, and with what identity.

    implementation: what records say of its kernels (`native` are our own). arch: the architecture.
    """

    @property
    def implementation(self) -> str: ...

    @property
    def arch(self) -> str: ...

    @property
    def headers(self) -> Headers:
        """What is put beside each translation unit."""

    @property
    def identity(self) -> str:
        """Hash of what decides the binaries besides kernel, toolchain and flags. Part of every cache key."""

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why the source has no code of this kernel for this problem, or None."""

    def unit(self, kernel: Kernel) -> str:
        """The kernel's translation unit. Raises KernelError for a kernel that there is no code for."""

    def prebuilt(self, name: str, unit: str) -> Binary | None:
        """The binary of a name and its translation unit, if no compiler is needed. Raises BuildError for
        a binary that is damaged."""

    def find_toolchain(self, name: str) -> Toolchain:
        """The toolchain that the user asks for by this name (auto: any). Raises BuildError."""

    def check_unchanged(self) -> None:
        """Raises BuildError when files outside `headers` are not what `identity` says any more."""

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        """Why a fresh binary cannot be used, or None. Raises BuildError for one that cannot be read."""
