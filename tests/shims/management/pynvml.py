"""A double of nvidia-ml-py with the same functions; it records calls and returns what a test sets."""

from __future__ import annotations

calls: list[tuple[object, ...]] = []
answers: dict[tuple[object, ...], int] = {}


class NVMLError(Exception):
    """What the real one raises."""


def nvmlInit() -> None:
    calls.append(("nvmlInit",))
    if ("nvmlInit",) in answers:
        raise NVMLError("Driver Not Loaded")


def nvmlDeviceGetHandleByPciBusId(identity: bytes) -> str:
    calls.append(("nvmlDeviceGetHandleByPciBusId", identity))
    if identity != b"0000:ab:00.0":
        raise NVMLError("Not Found")
    return "handle"


def nvmlDeviceGetHandleByIndex(index: int) -> str:
    calls.append(("nvmlDeviceGetHandleByIndex", index))
    return "handle"


def _answer(*call: object) -> int:
    calls.append(call)
    if call not in answers:
        raise NVMLError("Not Supported")
    return answers[call]


def nvmlDeviceGetClockInfo(handle: str, kind: int) -> int:
    return _answer("nvmlDeviceGetClockInfo", handle, kind)


def nvmlDeviceGetTemperature(handle: str, sensor: int) -> int:
    return _answer("nvmlDeviceGetTemperature", handle, sensor)


def nvmlDeviceGetPowerUsage(handle: str) -> int:
    return _answer("nvmlDeviceGetPowerUsage", handle)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: str) -> int:
    """The only name that drivers of before 535 have."""
    return _answer("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
