"""Clocks, temperature, power and throttling of a GPU, read through the vendors' management libraries.

The libraries are optional: nvidia-ml-py (tile-oracle[nvidia]) and amdsmi (tile-oracle[amd]). Values that
cannot be read are None. A reading takes up to a millisecond, so a thread reads ten times a second, and a
measurement gets the last reading and all causes of throttling since the previous measurement.
"""

from __future__ import annotations

import importlib
import io
import threading
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

_INTERVAL_S = 0.1
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0
_THROTTLE_REASONS: Mapping[int, str] = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
"""nvmlClocksEventReason... of nvml.h, without those for idle and for user settings."""
_RESIDENCIES: Mapping[str, str] = {
    "prochot_residency_acc": "processor hot",
    "ppt_residency_acc": "power cap",
    "socket_thm_residency_acc": "socket thermal limit",
    "vr_thm_residency_acc": "voltage regulator thermal limit",
    "hbm_thm_residency_acc": "memory thermal limit",
}
"""amd_smi's GPU metrics of MI300 and newer: each counts up while a limit reduces the clocks."""


@dataclass(frozen=True)
class DeviceState:
    """One reading. throttled: the causes of throttling, separated by commas; "" for none, None if unknown."""

    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: str | None = None

    def as_row(self) -> dict[str, Any]:
        """Returns the columns of a record."""
        return {name: getattr(self, name) for name in DEVICE_STATE}


DEVICE_STATE: tuple[str, ...] = tuple(DeviceState.__dataclass_fields__)


class NvidiaReader:
    """A GPU through nvidia-ml-py (pynvml)."""

    def __init__(self, library: Any, identity: str) -> None:
        """`identity`: the PCI address, or "" for the first GPU. Raises what the library raises for none."""
        self._library = library
        library.nvmlInit()
        if identity:
            self._handle = library.nvmlDeviceGetHandleByPciBusId(identity.encode())
        else:
            self._handle = library.nvmlDeviceGetHandleByIndex(0)

    def read(self) -> DeviceState:
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # older versions
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return DeviceState(
            clock_mhz=self._ask("nvmlDeviceGetClockInfo", _CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
            temperature_c=self._ask("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            power_w=None if milliwatts is None else milliwatts / 1000,
            throttled=None
            if reasons is None
            else ", ".join(name for bit, name in _THROTTLE_REASONS.items() if reasons & bit),
        )

    def _ask(self, function: str, *arguments: int) -> int | None:
        try:
            return int(getattr(self._library, function)(self._handle, *arguments))
        except Exception:  # NVMLError for unsupported values; AttributeError in other versions
            return None


class AmdReader:
    """A GPU through amdsmi, which also comes with ROCm."""

    def __init__(self, library: Any, identity: str) -> None:
        """`identity`: the PCI address, or "" for the first GPU. Raises what the library raises for none."""
        self._library = library
        library.amdsmi_init()
        if identity:
            self._handle = library.amdsmi_get_processor_handle_from_bdf(identity)
        else:
            self._handle = library.amdsmi_get_processor_handles()[0]
        self._residencies: dict[str, int] = {}

    def read(self) -> DeviceState:
        try:
            metrics: Mapping[str, Any] = self._library.amdsmi_get_gpu_metrics_info(self._handle)
        except Exception:  # AmdSmiLibraryException of any version
            return DeviceState()
        return DeviceState(
            clock_mhz=_first_number(metrics, "current_gfxclk", "current_gfxclks", "average_gfxclk_frequency"),
            memory_clock_mhz=_first_number(metrics, "current_uclk", "average_uclk_frequency"),
            temperature_c=_first_number(metrics, "temperature_hotspot", "temperature_edge"),
            power_w=_first_number(metrics, "current_socket_power", "average_socket_power"),
            throttled=self._throttled(metrics),
        )

    def _throttled(self, metrics: Mapping[str, Any]) -> str | None:
        """Returns the limits whose counters grew since the last reading; None for the first reading."""
        now = {name: metrics[name] for name in _RESIDENCIES if isinstance(metrics.get(name), int)}
        before, self._residencies = self._residencies, now
        known = before.keys() & now.keys()
        if known:
            return ", ".join(
                _RESIDENCIES[name] for name in _RESIDENCIES if name in known and now[name] > before[name]
            )
        status = metrics.get("throttle_status")
        return ("throttled" if status else "") if isinstance(status, (bool, int)) else None


def _first_number(metrics: Mapping[str, Any], *names: str) -> int | None:
    """Returns the first of these metrics that is a number; unknown ones are "N/A".

    For a list (one clock per die) the lowest value, which limits the slowest workgroups.
    """
    for name in names:
        value = metrics.get(name)
        numbers = value if isinstance(value, list) else [value]
        known = [one for one in numbers if isinstance(one, int) and not isinstance(one, bool)]
        if known:
            return min(known)
    return None


StateReader = NvidiaReader | AmdReader
"""Reads one GPU through a management library: `read` returns the current state, and never raises."""
_LIBRARIES: Mapping[str, tuple[str, Any]] = {"nvidia": ("pynvml", NvidiaReader), "amd": ("amdsmi", AmdReader)}


def open_reader(vendor: str, identity: str = "") -> StateReader | None:
    """Returns a reader of the GPU at a PCI address; None when the library or the GPU is not available.

    vendor: nvidia or amd. identity: the PCI address; "" for the first GPU.
    """
    module, reader = _LIBRARIES[vendor]
    try:
        # The libraries raise their own exceptions, or those of their loader.
        found: StateReader = reader(_load(module), identity)
    except Exception:
        return None
    return found


def why_not_readable(vendor: str) -> str:
    """Returns why a vendor's library cannot be used, and how to get it; "" when it can."""
    module, _ = _LIBRARIES[vendor]
    try:
        library = _load(module)
    except ImportError:
        return f"{module} is not installed (pip install 'tile-oracle[{vendor}]')"
    except Exception as error:  # without ROCm amdsmi raises its loader's error
        return f"{module} cannot be loaded: {_said(error)}"
    try:
        library.nvmlInit() if vendor == "nvidia" else library.amdsmi_init()
    except Exception as error:
        return f"{module} finds no driver: {_said(error)}"
    return ""


def _load(module: str) -> Any:
    # amdsmi prints to standard output when something is missing.
    with redirect_stdout(io.StringIO()):
        return importlib.import_module(module)


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


class StateWatch:
    """Reads regularly in its own thread, which the first `take` starts."""

    def __init__(self, reader: StateReader | None, interval_s: float = _INTERVAL_S) -> None:
        self._reader, self._interval_s = reader, interval_s
        self._lock = threading.Lock()
        self._latest = DeviceState()
        self._reasons: dict[str, None] = {}
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Reads once."""
        if self._reader is None:
            return
        state = self._reader.read()
        with self._lock:
            self._latest = state
            for reason in filter(None, (state.throttled or "").split(", ")):
                self._reasons.setdefault(reason)

    def take(self) -> DeviceState:
        """Returns the last reading, with all causes of throttling since the previous call."""
        if self._thread is None and self._reader is not None:
            self.look()
            self._thread = threading.Thread(target=self._run, name="tile-oracle-state", daemon=True)
            self._thread.start()
        with self._lock:
            state, reasons = self._latest, ", ".join(self._reasons)
            self._reasons.clear()
        return state if state.throttled is None else replace(state, throttled=reasons)

    def _run(self) -> None:
        while True:
            time.sleep(self._interval_s)
            self.look()
