"""Devices of this host, each with a process of its own (device_process)."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from tile_oracle.errors import DeviceMissingError, HarnessError
from tile_oracle.measure.assignments import DeviceSettings
from tile_oracle.measure.engine import Event
from tile_oracle.measure.other_processes import Answer, DeviceProcess, OtherProcesses, Silent, Slot
from tile_oracle.process.children import child_environment, is_stopped
from tile_oracle.targets.gpu_presence import DEVICE_NUMBER

_LOOK_S = 2.0
"""Interval between looks at a silent process, which tells something every second, in seconds."""
_MOST_STOPPED_LOOKS, _MOST_SILENT_LOOKS = 5, 30
"""Successive looks that find a process stopped by a signal, or silent, before it is replaced."""
_ENDS_S = 10.0


class _Process(DeviceProcess):
    """A child of this process, at the other end of a socket."""

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
        with suppress(OSError):
            self._pipe.send((sys.path, settings))

    def call(self, method: str, *arguments: object) -> None:
        with suppress(OSError):
            self._pipe.send((method, *arguments))

    def receive(self) -> Answer:
        silent = stopped = 0
        while not self._pipe.poll(_LOOK_S):
            silent, stopped = silent + 1, stopped + 1 if is_stopped(self._process.pid) else 0
            # Looks, not seconds: time that passes while this process is stopped does not count.
            if stopped >= _MOST_STOPPED_LOOKS:
                raise Silent(f"its process was stopped for {stopped * _LOOK_S:g} s and has been killed")
            if silent >= _MOST_SILENT_LOOKS:
                raise Silent(f"its process did not answer for {silent * _LOOK_S:g} s and has been killed")
        answer: Answer = self._pipe.recv()
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self.kill()


class HostDevices(OtherProcesses):
    """Devices with numbers from 0."""

    def __init__(self, settings: DeviceSettings, count: int) -> None:
        super().__init__()
        self._settings = settings
        self._why: HarnessError = DeviceMissingError(
            "no device of this machine is left; what was measured is recorded: --resume continues"
        )
        """Why the last device was given up."""
        self._slots = {name: Slot(name) for name in (f"device {number}" for number in range(count))}

    def _start_due(self, now: float) -> list[Event]:
        """Raises HarnessError when every device was given up."""
        if all(slot.given_up for slot in self._slots.values()):
            raise self._why
        for number, slot in enumerate(self._slots.values()):
            if slot.is_due(now):
                self._start(slot, _Process(number, self._settings))
        return []

    def _died(self, slot: Slot, why: HarnessError | str) -> list[Event]:
        self._why = why if isinstance(why, HarnessError) else DeviceMissingError(f"{slot.name}: {why}")
        return super()._died(slot, why)
