"""Clocks, temperature, power and throttling, read through doubles of the management libraries."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tile_oracle.record.schema import columns
from tile_oracle.targets.device_state import (
    DEVICE_STATE,
    DeviceState,
    StateWatch,
    open_reader,
    why_not_readable,
)

DOUBLES = Path(__file__).parent.parent / "shims" / "management"
PCI = "0000:ab:00.0"


def double(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOUBLES))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


@pytest.fixture
def pynvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = double("pynvml", monkeypatch)
    yield module
    sys.modules.pop("pynvml")


@pytest.fixture
def amdsmi(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = double("amdsmi", monkeypatch)
    yield module
    sys.modules.pop("amdsmi")


def test_nvidia_gpus_are_found_by_pci_address(pynvml: ModuleType) -> None:
    pynvml.answers.update(
        {
            ("nvmlDeviceGetClockInfo", "handle", 1): 1755,
            ("nvmlDeviceGetClockInfo", "handle", 2): 3201,
            ("nvmlDeviceGetTemperature", "handle", 0): 61,
            ("nvmlDeviceGetPowerUsage", "handle"): 512_300,
            ("nvmlDeviceGetCurrentClocksThrottleReasons", "handle"): 0x1 | 0x4 | 0x40,
        }
    )
    reader = open_reader("nvidia", PCI)
    assert reader.read() == DeviceState(1755, 3201, 61, 512.3, "power cap, hardware thermal limit")
    assert pynvml.calls[:2] == [("nvmlInit",), ("nvmlDeviceGetHandleByPciBusId", PCI.encode())]
    pynvml.answers[("nvmlDeviceGetCurrentClocksThrottleReasons", "handle")] = 0x1 | 0x2
    assert reader.read().throttled == "", "idle and set clocks are nobody's fault"


def test_what_nvidia_does_not_report_is_empty(pynvml: ModuleType) -> None:
    pynvml.answers[("nvmlDeviceGetTemperature", "handle", 0)] = 40
    reader = open_reader("nvidia", PCI)
    assert reader.read() == DeviceState(temperature_c=40)


def test_amd_throttles_where_a_counter_grows(amdsmi: ModuleType) -> None:
    first = {
        "current_gfxclk": "N/A",
        "current_gfxclks": [2100, 1980, "N/A"],
        "current_uclk": 2000,
        "temperature_hotspot": 71,
        "current_socket_power": 900,
        "ppt_residency_acc": 10,
        "socket_thm_residency_acc": 5,
        "hbm_thm_residency_acc": "N/A",
    }
    amdsmi.metrics.extend([first, first | {"ppt_residency_acc": 12}, first | {"ppt_residency_acc": 12}])
    reader = open_reader("amd", PCI)
    assert reader.read() == DeviceState(1980, 2000, 71, 900, None)
    assert reader.read().throttled == "power cap"
    assert reader.read().throttled == ""
    assert reader.read() == DeviceState(), "the library failed"
    assert amdsmi.calls[:2] == [("amdsmi_init",), ("amdsmi_get_processor_handle_from_bdf", PCI)]


def test_an_older_amd_gpu_has_one_flag(amdsmi: ModuleType) -> None:
    amdsmi.metrics.extend([{"throttle_status": True}, {"throttle_status": False}, {}])
    reader = open_reader("amd", PCI)
    assert [reader.read().throttled for _ in range(3)] == ["throttled", "", None]


def test_without_a_library_or_its_gpu_there_is_no_reader(pynvml: ModuleType) -> None:
    assert open_reader("nvidia", "0000:01:00.0") is None
    assert why_not_readable("nvidia") == ""
    pynvml.answers[("nvmlInit",)] = 1
    assert open_reader("nvidia", PCI) is None
    assert why_not_readable("nvidia") == "pynvml finds no driver: Driver Not Loaded"


@pytest.mark.parametrize(("vendor", "module"), [("nvidia", "pynvml"), ("amd", "amdsmi")])
def test_without_the_package_the_message_says_how_to_get_it(
    vendor: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert open_reader(vendor, PCI) is None
    assert f"pip install 'tile-oracle[{vendor}]'" in why_not_readable(vendor)


class Script:
    """A reader that returns the states in order, then repeats the last one."""

    def __init__(self, *states: DeviceState) -> None:
        self.states = list(states)

    def read(self) -> DeviceState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def test_throttling_between_two_measurements_belongs_to_the_second() -> None:
    calm, hot = DeviceState(clock_mhz=1980, throttled=""), DeviceState(clock_mhz=1400, throttled="power cap")
    watch = StateWatch(Script(calm, hot, calm), interval_s=3600)
    assert watch.take() == calm
    watch.look()
    watch.look()
    assert watch.take() == DeviceState(clock_mhz=1980, throttled="power cap")
    assert watch.take() == calm


def test_without_a_reader_nothing_is_known() -> None:
    watch = StateWatch(None)
    assert watch.take() == DeviceState()


def test_every_figure_is_a_column() -> None:
    assert set(DEVICE_STATE) <= {column.name for column in columns()}
