"""Devices of this host, each with a process of its own (device_process)."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

from tile_oracle.errors import DeviceMissingError, HarnessError
from tile_oracle.measure.assignments import DeviceSettings, Message, Opened, Work
from tile_oracle.measure.engine import Engine, Event, Gone, Joined, Told
from tile_oracle.process.children import child_environment, is_stopped
from tile_oracle.targets.gpu_presence import DEVICE_NUMBER

_LOOK_S = 2.0
"""Interval between looks at a silent process, which tells something every second, in seconds."""
_MOST_STOPPED_LOOKS, _MOST_SILENT_LOOKS = 5, 30
"""Successive looks that find a process stopped by a signal, or silent, before it is replaced."""
_SUCCESSIVE_DEATHS = 4
"""Deaths of a device's processes without a result in between after which it is given up."""
_RESTART_S = 0.5
_ENDS_S = 10.0


class _Silent(Exception):
    """The process does not answer."""


class _Process:
    """A device's process: it takes the calls of a DeviceRunner."""

    def __init__(self, number: int, settings: DeviceSettings) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tile_oracle.measure.device_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=child_environment(**{DEVICE_NUMBER: str(number)}),
                start_new_session=True,  # Ctrl-C must reach only pytest
            )
        self._pipe = Connection(ours.detach())
        self.call(sys.path, settings)

    def call(self, *what: object) -> None:
        """Sends a call. A process that has died is noticed by `receive`."""
        with suppress(OSError):
            self._pipe.send(what)

    def receive(self) -> Any:
        """Returns what the process tells next. Raises EOFError and OSError if it has died, _Silent."""
        silent = stopped = 0
        while not self._pipe.poll(_LOOK_S):
            silent, stopped = silent + 1, stopped + 1 if is_stopped(self._process.pid) else 0
            # Looks, not seconds: time that passes while this process is stopped does not count.
            if stopped >= _MOST_STOPPED_LOOKS:
                raise _Silent(f"its process was stopped for {stopped * _LOOK_S:g} s and has been killed")
            if silent >= _MOST_SILENT_LOOKS:
                raise _Silent(f"its process did not answer for {silent * _LOOK_S:g} s and has been killed")
        return self._pipe.recv()

    def kill(self) -> None:
        """Ends the process and its worker now."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Waits for a process that was told to close."""
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass
class _Slot:
    """The place of a device."""

    number: int
    process: _Process | None = None
    deaths: int = 0
    restart_s: float = 0.0
    given_up: bool = False

    @property
    def name(self) -> str:
        return f"device {self.number}"


class HostDevices(Engine):
    """See tile_oracle.measure.engine.Engine."""

    def __init__(self, settings: DeviceSettings, count: int) -> None:
        self._settings = settings
        self._why: HarnessError = DeviceMissingError(
            "no device of this machine is left; what was measured is recorded: --resume continues"
        )
        """Why the last device was given up."""
        self._slots = {one.name: one for one in map(_Slot, range(count))}
        self._told: SimpleQueue[tuple[_Process, str, Opened | list[Message] | str | HarnessError]] = (
            SimpleQueue()
        )

    def events(self, wait_s: float) -> list[Event]:
        """Raises HarnessError when every device was given up."""
        if all(slot.given_up for slot in self._slots.values()):
            raise self._why
        for slot in self._slots.values():
            if slot.process is None and not slot.given_up and time.monotonic() >= slot.restart_s:
                slot.process = _Process(slot.number, self._settings)
                threading.Thread(target=self._listen, args=(slot.process, slot.name), daemon=True).start()
        found: list[Event] = []
        with suppress(Empty):
            found += self._event(*self._told.get(timeout=wait_s))
            while True:
                found += self._event(*self._told.get_nowait())
        return found

    def _listen(self, process: _Process, name: str) -> None:
        """Passes on what a process tells."""
        told: Any = None
        while not isinstance(told, str | HarnessError):
            try:
                told = process.receive()
            except _Silent as silent:
                told = str(silent)
            except (EOFError, OSError):
                told = "its process has died"
            self._told.put((process, name, told))

    def _event(
        self, process: _Process, name: str, told: Opened | list[Message] | str | HarnessError
    ) -> list[Event]:
        slot = self._slots[name]
        if slot.process is not process:
            return []  # dropped
        if isinstance(told, Opened):
            return [Joined(name, told)]
        if isinstance(told, list):
            slot.deaths = 0 if told else slot.deaths
            return [Told(name, told)] if told else []
        slot.deaths += 1
        self._why = told if isinstance(told, HarnessError) else DeviceMissingError(f"{name}: {told}")
        self.drop(name, again=isinstance(told, str) and slot.deaths < _SUCCESSIVE_DEATHS)
        return [Gone(name, str(told), died=isinstance(told, str))]

    def assign(self, device: str, work: Work) -> None:
        self._call(device, "assign", work)

    def withdraw(self, device: str, number: int, kernels: Sequence[str]) -> None:
        self._call(device, "withdraw", number, tuple(kernels))

    def _call(self, device: str, *what: object) -> None:
        process = self._slots[device].process
        if process is not None:
            process.call(*what)

    def drop(self, device: str, *, again: bool) -> None:
        slot = self._slots[device]
        process, slot.process = slot.process, None
        if process is not None:
            process.kill()
        slot.given_up |= not again
        slot.restart_s = time.monotonic() + _RESTART_S * slot.deaths

    def close(self) -> None:
        processes = [slot.process for slot in self._slots.values() if slot.process is not None]
        for process in processes:
            process.call("close")
        for process in processes:
            process.wait()
