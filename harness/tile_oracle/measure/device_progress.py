"""How far the devices are: pairs per second, time left, and what each device does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tile_oracle.measure.assignments import Opened, Result
from tile_oracle.measure.dispatcher import Dispatcher
from tile_oracle.pages.words import count
from tile_oracle.terminal.progress_line import clock

_WINDOW_S = 60.0
_UPDATE_S = 1.0

WORKS, ASIDE, GONE = "works", "set aside", "gone"


@dataclass
class DeviceProgress:
    """One device. state: works, set aside or gone; why: the reason. busy_s: time with an assignment."""

    name: str
    kind: str = ""
    host: str = ""
    driver: str = ""
    state: str = WORKS
    why: str = ""
    pairs: int = 0
    joined: int = 0
    busy_s: float = 0.0


@dataclass
class DevicesProgress:
    """Fed by the driver. line: the devices in a few words, for the terminal; may be read from any thread."""

    devices: dict[str, DeviceProgress] = field(default_factory=dict)
    planned: int = 0
    pairs: int = 0
    _last_s: float = 0.0
    _times: deque[tuple[float, int]] = field(default_factory=deque)
    _busy: dict[str, float] = field(default_factory=dict)
    line: str = ""

    def plan(self, pairs: int) -> None:
        """Sets the number of pairs that are to be measured."""
        self.planned = pairs

    def joined(self, name: str, opened: Opened) -> None:
        """A device is there, new or again."""
        one = self.devices.setdefault(name, DeviceProgress(name))
        one.kind, one.host, one.driver = opened.kind, opened.host, opened.driver
        one.state, one.why = WORKS, ""
        one.joined += 1

    def gone(self, name: str, why: str) -> None:
        """A device is not there any more."""
        one = self.devices.setdefault(name, DeviceProgress(name))
        one.state, one.why = GONE, why

    def set_aside(self, name: str, kind: str, why: str) -> None:
        """A device gets no more work."""
        one = self.devices.setdefault(name, DeviceProgress(name))
        one.kind = kind or one.kind
        one.state, one.why = ASIDE, why

    def pair(self, name: str, result: Result) -> None:
        """A pair has its result."""
        self.pairs += 1
        self.devices[name].pairs += 1

    def update(self, dispatcher: Dispatcher, now: float, building: int) -> None:
        """Takes the state of the dispatcher, at most once a second."""
        if now - self._last_s < _UPDATE_S:
            return
        busy = dispatcher.busy()
        for name, _, seconds in dispatcher.devices():
            if name in self.devices:
                self.devices[name].busy_s = seconds + (now - busy[name] if name in busy else 0.0)
        usable = dispatcher.usable()
        parts = [count(len(usable), "device")]
        if self._last_s and usable:
            spent = [self.devices[n].busy_s - self._busy.get(n, 0.0) for n in usable if n in self.devices]
            share = sum(spent) / ((now - self._last_s) * len(usable))
            parts.append(f"{100 * min(1.0, max(0.0, share)):.0f} % busy")
        parts.append(f"{self.pairs:,} of {self.planned:,} pairs")
        self._busy = {name: one.busy_s for name, one in self.devices.items()}
        self._last_s = now
        self._times.append((now, self.pairs))
        while now - self._times[0][0] > _WINDOW_S and len(self._times) > 2:
            self._times.popleft()
        then, before = self._times[0]
        if self.pairs > before:
            rate = (self.pairs - before) / (now - then)
            parts.append(f"{rate:,.0f} pairs/s" if rate >= 1000 else f"{rate:.3g} pairs/s")
            parts.append(f"{clock(dispatcher.pairs_left / rate)} left")
        if building:
            parts.append(f"{building:,} kernels to build")
        states = [one.state for one in self.devices.values()]
        parts += [f"{states.count(state)} {state}" for state in (ASIDE, GONE) if state in states]
        self.line = ", ".join(parts)

    def notes(self) -> list[str]:
        """Returns a line for each device that was set aside, or that was gone at the end."""
        return [
            f"{one.name}{f' ({one.kind})' if one.kind else ''} is {one.state}: {one.why}"
            for one in self.devices.values()
            if one.state != WORKS
        ]
