"""The part of an operation in the translation units of kernels/gpu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class GpuSource(Protocol):
    """Implemented by a module with these members."""

    HEADER: str
    """The header of kernels/gpu with the operation's kernel, without its suffix."""

    GPU_DTYPES: Mapping[str, tuple[str, ...]]
    """Machine of `tile_oracle.compiling.isa` -> data types that kernels/gpu multiplies there."""

    def code_refusal(self, kernel: Any, arch: str) -> str | None:
        """Returns why a kernel that the architecture allows has no code, or None."""

    def macros(self, kernel: Any, arch: str) -> dict[str, object]:
        """Returns the macros that are particular to the operation."""
