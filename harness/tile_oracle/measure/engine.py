"""What the driver needs of the engine that runs its devices: own_device, host_devices, fleet.ray_engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tile_oracle.measure.assignments import Message, Opened, Work
from tile_oracle.problem import Problem


@dataclass(frozen=True)
class Joined:
    """A device is open. remote: its machine may lack the binaries that the driver has."""

    device: str
    opened: Opened
    remote: bool = False


@dataclass(frozen=True)
class Gone:
    """A device has ended, cannot be opened, or does not answer. died: while it may have run a kernel."""

    device: str
    why: str
    died: bool = True


@dataclass(frozen=True)
class Told:
    """Messages of a device."""

    device: str
    messages: Sequence[Message]


Event = Joined | Gone | Told


class Engine(Protocol):
    """Runs one `device_runner.DeviceRunner` a device. All methods are called from one thread."""

    def events(self, wait_s: float) -> list[Event]:
        """Returns what has happened; waits at most `wait_s` seconds for the first event."""

    def assign(self, device: str, work: Work) -> None:
        """Gives a device an assignment. A device that has died is reported as Gone later."""

    def prepare(self, problem: Problem) -> None:
        """Has a device that would wait prepare the problem that probably comes next."""
        return

    def withdraw(self, device: str, number: int, kernels: Sequence[str]) -> None:
        """Takes kernels of an assignment back."""

    def drop(self, device: str, *, again: bool) -> None:
        """Ends a device. again: it may join once more, in a new process."""

    def waiting(self) -> str:
        """Returns what the engine waits for before a device can join, "" if nothing is on its way."""
        return ""

    def close(self) -> None:
        """Ends all devices."""
