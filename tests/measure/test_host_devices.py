"""Devices of this host in processes of their own: they join, die, are replaced and given up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import LONGEST_S, has_ended, wait_until
from tile_oracle.errors import DeviceMissingError, HarnessError
from tile_oracle.measure import host_devices, other_processes
from tile_oracle.measure.assignments import DeviceSettings
from tile_oracle.measure.engine import Event, Gone, Joined
from tile_oracle.measure.host_devices import HostDevices, _Process
from tile_oracle.measure.other_processes import Silent
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.process.children import is_stopped
from tile_oracle.targets import TargetOptions

NAME = "device 0"


@pytest.fixture
def open_devices() -> Iterator[Callable[..., HostDevices]]:
    opened: list[HostDevices] = []

    def make(target: str = "cpu", count: int = 1) -> HostDevices:
        opened.append(
            HostDevices(DeviceSettings(target, TargetOptions(jobs=1), SweepSettings(), "it"), count)
        )
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def event(devices: HostDevices) -> Event:
    """What happens next."""
    (one,) = wait_until(lambda: devices.events(0.1))
    return one


def pid(devices: HostDevices) -> int:
    process = devices._slots[NAME].process
    return process._process.pid


def test_a_killed_device_joins_again_until_it_is_given_up(
    open_devices: Callable[..., HostDevices], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_processes, "SUCCESSIVE_DEATHS", 2)
    monkeypatch.setattr(other_processes, "RESTART_S", 0.0)
    devices = open_devices()
    for _ in range(2):
        joined = event(devices)
        assert isinstance(joined, Joined)
        os.kill(pid(devices), signal.SIGKILL)
        assert event(devices) == Gone(NAME, "its process has died", died=True)
    with pytest.raises(DeviceMissingError, match="device 0: its process has died"):
        devices.events(0.0)


@pytest.mark.slow
def test_a_stopped_device_is_killed_and_replaced(
    open_devices: Callable[..., HostDevices], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = open_devices()
    event(devices)
    stopped = pid(devices)
    with monkeypatch.context() as patch:
        patch.setattr(host_devices, "_LOOK_S", 0.2)
        os.kill(stopped, signal.SIGSTOP)
        gone = event(devices)
    assert isinstance(gone, Gone)
    assert "was stopped for 1 s and has been killed" in gone.why
    wait_until(lambda: has_ended(stopped))
    assert isinstance(event(devices), Joined)


def test_a_device_that_tells_nothing_for_a_minute_is_silent() -> None:
    process: Any = object.__new__(_Process)
    looks = iter([False] * 30)
    process._pipe = SimpleNamespace(poll=lambda wait_s: next(looks))
    process._process = SimpleNamespace(pid=os.getpid())
    with pytest.raises(Silent, match="did not answer for 60 s"):
        process.receive()


def test_what_keeps_a_device_from_opening_is_the_sessions_error(
    open_devices: Callable[..., HostDevices],
) -> None:
    devices = open_devices("nowhere")
    gone = event(devices)
    assert isinstance(gone, Gone)
    assert not gone.died
    with pytest.raises(HarnessError, match="nowhere"):
        devices.events(0.0)


def test_all_that_devices_have_told_is_handed_over_at_once(open_devices: Callable[..., HostDevices]) -> None:
    devices = open_devices("nowhere", 2)
    assert devices.events(0.0) == []
    wait_until(lambda: devices._told.qsize() == 2)
    assert {gone.device for gone in devices.events(0.0) if isinstance(gone, Gone)} == {NAME, "device 1"}


def test_devices_end_with_their_session(open_devices: Callable[..., HostDevices]) -> None:
    devices = open_devices()
    event(devices)
    process = devices._slots[NAME].process
    assert os.getsid(pid(devices)) == pid(devices), "Ctrl-C does not reach it"
    assert not is_stopped(pid(devices))
    os.kill(pid(devices), signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid(devices)))
    os.kill(pid(devices), signal.SIGCONT)
    process._pipe.close()  # as when the session's process is killed
    assert process._process.wait(LONGEST_S) == 0
