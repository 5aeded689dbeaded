"""A machine of a fleet that compiles: takes names of kernels, returns binaries."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import NamedTuple

from tile_oracle.kernel import parse_kernel_name
from tile_oracle.measure.assignments import DeviceSettings, Shipment
from tile_oracle.measure.shipments import shipment_of
from tile_oracle.measure.target_of_settings import open_target


class CompilerOpened(NamedTuple):
    """A machine can compile. identity: `Target.source_identity`, which must be the session's own."""

    host: str
    identity: str


class CompileRunner:
    """The compilers of one machine. Once it is open, `build` may be called from any thread."""

    def __init__(self, settings: DeviceSettings, jobs: int) -> None:
        """jobs: compilers that run at once."""
        options = replace(settings.options, jobs=jobs, elsewhere=True)
        self._settings = replace(settings, options=options)

    def open(self) -> CompilerOpened:
        """Opens the target: where this is, and what its binaries would be. Raises HarnessError."""
        self._target = open_target(self._settings)
        return CompilerOpened(socket.gethostname(), self._target.source_identity())

    def build(self, kernel: str) -> Shipment | None:
        """Returns the binary of a kernel, compiled or from this machine's cache; None if it does not build
        here."""
        result = self._target.build(parse_kernel_name(kernel)).result()
        return None if result.binary is None else shipment_of(result.binary)

    def close(self) -> None:
        """Stops the compilers."""
        self._target.close()
