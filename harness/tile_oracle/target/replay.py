"""The target `replay`: recorded measurements. It builds nothing and opens no device."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tile_oracle.errors import TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

if TYPE_CHECKING:
    from tile_oracle.build.builder import Builder, BuildResult

NAME = "replay"
_NO_DEVICE = "the target replay has no device: it reads records and measures nothing"


@dataclass
class ReplayTarget:
    """See target.base.Target. arch: architecture of the recorded kernels. identity: hash of the records.
    device_name: device of the records."""

    arch: str
    identity: str
    device_name: str = ""
    name: str = NAME
    device_module: str = ""
    implementation: str = "native"
    builder: Builder | None = None

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """None: the records have the outcome of each pair."""
        return None

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        """Raises TargetError."""
        raise TargetError(_NO_DEVICE)

    def source_identity(self) -> str:
        return self.identity

    def device_options(self) -> Mapping[str, str]:
        """Raises TargetError."""
        raise TargetError(_NO_DEVICE)

    def timeout_s(self, problem: Problem) -> float:
        return 0.0

    def close(self) -> None:
        """Does nothing: nothing is open."""
