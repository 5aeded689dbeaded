"""What an operation adds to the translation units of kernels/gpu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class GpuSource(Protocol):
    """A module with these is one."""

    HEADER: str
    """The header of kernels/gpu with the operation's kernel, without its ending."""

    GPU_DTYPES: Mapping[str, tuple[str, ...]]
    """Machine of `tile_oracle.build.isa` -> what kernels/gpu multiplies there."""

    def code_refusal(self, kernel: Any, arch: str) -> str | None:
        """Why there is no code for a kernel that the architecture allows, or None."""

    def macros(self, kernel: Any, arch: str) -> dict[str, object]:
        """The macros that other operations do not have."""
