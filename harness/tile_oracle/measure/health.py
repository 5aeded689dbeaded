"""Which devices of a fleet are sick, and how far equal devices differ.

Every device measures the same few kernels on one problem before it gets work: the calibration. A device is
sick when a kernel that works elsewhere fails on it, when it is much slower than the other devices of its
kind, or when its hardware holds its clocks back while others' run free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from tile_oracle.measure.assignments import Result

SLOWER = 0.20
"""A device that needs this fraction more time than the median of its kind is slow."""
_LEAST_TO_COMPARE = 3
"""Devices of a kind that tell which of them is slow."""
_LAST_ROWS = 64
_HARDWARE = ("hardware", "brake", "thermal", "hot")
"""Parts of the names of causes of throttling that mean a fault. A power cap is not one."""
_GOOD = ("ok", "noisy")


@dataclass
class _Device:
    kind: str
    results: dict[str, Result] = field(default_factory=dict)
    throttled: deque[bool] = field(default_factory=lambda: deque(maxlen=_LAST_ROWS))


@dataclass(frozen=True)
class Spread:
    """How far the devices of a kind differ. percent: time of the slowest over the fastest, minus 1, as the
    median over the calibration kernels."""

    kind: str
    devices: int
    percent: float
    fastest: str
    slowest: str


class Health:
    """Collects what is known about each device."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._past: dict[str, Mapping[str, Result]] = {}

    def calibrated(self, device: str, kind: str, results: Mapping[str, Result]) -> None:
        """A device has measured the calibration kernels."""
        self._devices[device] = _Device(kind, dict(results))

    def measured(self, device: str, throttled: str) -> None:
        """A device has measured a pair. throttled: what held its clocks back, "" for nothing."""
        one = self._devices.get(device)
        if one is not None:
            one.throttled.append(any(cause in throttled for cause in _HARDWARE))

    def speed(self, device: str) -> float | None:
        """Returns the device's time over the median time of its kind, as the median over the calibration
        kernels."""
        one = self._devices.get(device)
        return None if one is None else _speed(one, self._peers(one.kind))

    def results(self, device: str) -> Mapping[str, Result]:
        """Returns the device's calibration, by kernel name."""
        one = self._devices.get(device)
        return self._past.get(device, {}) if one is None else one.results

    def sick(self) -> dict[str, str]:
        """Device -> why it is sick. Fewer than half of a kind are slow or throttled: otherwise it is the kind
        or the work, not a device."""
        found: dict[str, str] = {}
        for kind in {one.kind for one in self._devices.values()}:
            peers = self._peers(kind)
            of_kind = {name: one for name, one in self._devices.items() if one.kind == kind}
            wrong = {name: why for name, one in of_kind.items() if (why := _wrong(one, peers))}
            found |= wrong
            left = {name: one for name, one in of_kind.items() if name not in wrong}
            worst = {name: why for name, one in left.items() if (why := _slow(one, peers) or _hot(one))}
            if len(left) >= _LEAST_TO_COMPARE and 2 * len(worst) < len(left):
                found |= worst
        return found

    def forget(self, device: str) -> None:
        """The device is gone; its calibration stays known."""
        one = self._devices.pop(device, None)
        if one is not None:
            self._past[device] = one.results

    def spreads(self) -> list[Spread]:
        """Returns the spread of each kind with two devices or more."""
        found = []
        for kind in sorted({one.kind for one in self._devices.values()}):
            speeds = {
                device: speed
                for device, one in self._devices.items()
                if one.kind == kind and (speed := self.speed(device)) is not None
            }
            if len(speeds) > 1:
                fastest, slowest = min(speeds, key=speeds.__getitem__), max(speeds, key=speeds.__getitem__)
                percent = 100 * (speeds[slowest] / speeds[fastest] - 1)
                found.append(Spread(kind, len(speeds), percent, fastest, slowest))
        return found

    def _peers(self, kind: str) -> dict[str, _Peers]:
        """Kernel -> what the devices of a kind made of it."""
        results: dict[str, list[Result]] = {}
        for one in self._devices.values():
            if one.kind == kind:
                for kernel, result in one.results.items():
                    results.setdefault(kernel, []).append(result)
        return {
            kernel: _Peers(len(every), [one.latency_ms for one in every if one.status in _GOOD])
            for kernel, every in results.items()
        }


class _Peers:
    """All devices' results of a kernel. good: how many of `known` devices it works on."""

    def __init__(self, known: int, times: list[float]) -> None:
        self.known, self.good = known, len(times)
        self.median_ms = median(times) if times else 0.0


def _speed(one: _Device, peers: Mapping[str, _Peers]) -> float | None:
    ratios = [
        result.latency_ms / peers[kernel].median_ms
        for kernel, result in one.results.items()
        if result.status in _GOOD
    ]
    return median(ratios) if ratios else None


def _wrong(one: _Device, peers: Mapping[str, _Peers]) -> str:
    for kernel, result in one.results.items():
        known, good = peers[kernel].known, peers[kernel].good
        if result.status not in _GOOD and 2 * good > known:
            return (
                f"the calibration kernel {kernel} is {result.status}, and works on {good} of {known} devices"
            )
    return ""


def _slow(one: _Device, peers: Mapping[str, _Peers]) -> str:
    speed = _speed(one, peers)
    if speed is None or speed <= 1 + SLOWER:
        return ""
    return f"it takes {100 * (speed - 1):.0f} % more time than the others of its kind"


def _hot(one: _Device) -> str:
    last = one.throttled
    if len(last) < _LAST_ROWS or 2 * sum(last) <= len(last):
        return ""
    return f"its hardware held the clocks back in {sum(last)} of the last {len(last)} measurements"
