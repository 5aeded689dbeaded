"""Devices in processes of their own, whatever starts them: this host (host_devices) or a cluster (fleet)."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from tile_oracle.errors import HarnessError
from tile_oracle.measure.assignments import Message, Opened, Work
from tile_oracle.measure.engine import Engine, Event, Gone, Joined, Told

SUCCESSIVE_DEATHS = 4
"""Deaths of a device's processes without a result in between after which it is given up."""
RESTART_S = 0.5
"""How long a device that has died waits before it opens again, in seconds for each death."""

Answer = Opened | list[Message] | HarnessError
"""What a process tells: first that its device is open, or why it cannot be."""


class Silent(Exception):
    """The process does not answer."""


class DeviceProcess(ABC):
    """The process of a device: it has a `device_runner.DeviceRunner`."""

    @abstractmethod
    def call(self, method: str, *arguments: object) -> None:
        """Calls the runner. A process that has died is noticed by `receive`."""

    @abstractmethod
    def receive(self) -> Answer:
        """Returns what the process tells next. Raises EOFError and OSError if it has died, Silent."""

    @abstractmethod
    def kill(self) -> None:
        """Ends the process and its worker now."""

    @abstractmethod
    def wait(self) -> None:
        """Waits for a process that was told to close."""


@dataclass
class Slot:
    """The place of a device."""

    name: str
    process: DeviceProcess | None = None
    is_open: bool = False
    deaths: int = 0
    restart_s: float = 0.0
    given_up: bool = False

    @property
    def is_opening(self) -> bool:
        return self.process is not None and not self.is_open

    def is_due(self, now: float) -> bool:
        """Whether a process is to be started."""
        return self.process is None and not self.given_up and now >= self.restart_s


class OtherProcesses(Engine, ABC):
    """See tile_oracle.measure.engine.Engine. Each process has a thread that listens to it."""

    def __init__(self) -> None:
        self._slots: dict[str, Any] = {}
        self._told: SimpleQueue[tuple[DeviceProcess, str, Answer | str]] = SimpleQueue()

    @abstractmethod
    def _start_due(self, now: float) -> list[Event]:
        """Starts the processes that are due. Returns what is found out meanwhile."""

    def _start(self, slot: Slot, process: DeviceProcess) -> None:
        slot.process = process
        threading.Thread(target=self._listen, args=(process, slot.name), daemon=True).start()

    def events(self, wait_s: float) -> list[Event]:
        found = self._start_due(time.monotonic())
        with suppress(Empty):
            found += self._event(*self._told.get(timeout=0 if found else wait_s))
            while True:
                found += self._event(*self._told.get_nowait())
        return found

    def _listen(self, process: DeviceProcess, name: str) -> None:
        """Passes on what a process tells."""
        told: Answer | str = []
        while not isinstance(told, str | HarnessError):
            try:
                told = process.receive()
            except Silent as silent:
                told = str(silent)
            except (EOFError, OSError):
                told = "its process has died"
            self._told.put((process, name, told))

    def _event(self, process: DeviceProcess, name: str, told: Answer | str) -> list[Event]:
        slot = self._slots.get(name)
        if slot is None or slot.process is not process:
            return []  # dropped
        if isinstance(told, Opened):
            slot.is_open = True
            return [Joined(name, told, self._lacks_binaries(slot, told))]
        if isinstance(told, list):
            slot.deaths = 0 if told else slot.deaths
            return [Told(name, told)] if told else []
        return self._died(slot, told)

    def _died(self, slot: Slot, why: HarnessError | str) -> list[Event]:
        """Ends a device, which opens again unless it has said why it cannot."""
        slot.deaths += 1
        died = slot.is_open and isinstance(why, str)
        self.drop(slot.name, again=isinstance(why, str) and slot.deaths < SUCCESSIVE_DEATHS)
        return [Gone(slot.name, str(why), died=died)]

    def _lacks_binaries(self, slot: Slot, opened: Opened) -> bool:
        """Returns whether the device's machine may lack the binaries that the driver has."""
        return False

    def assign(self, device: str, work: Work) -> None:
        self._call(device, "assign", work)

    def withdraw(self, device: str, number: int, kernels: Sequence[str]) -> None:
        self._call(device, "withdraw", number, tuple(kernels))

    def _call(self, device: str, method: str, *arguments: object) -> None:
        slot = self._slots.get(device)
        if slot is not None and slot.process is not None:
            slot.process.call(method, *arguments)

    def drop(self, device: str, *, again: bool) -> None:
        slot = self._slots[device]
        process, slot.process, slot.is_open = slot.process, None, False
        if process is not None:
            process.kill()
        slot.given_up |= not again
        slot.restart_s = time.monotonic() + RESTART_S * max(1, slot.deaths)

    def close(self) -> None:
        processes = [slot.process for slot in self._slots.values() if slot.process is not None]
        for process in processes:
            process.call("close")
        for process in processes:
            process.wait()
