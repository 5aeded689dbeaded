"""What became of each device of a session."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tile_oracle.measure.assignments import Opened
from tile_oracle.pages.words import count

WORKS, ASIDE, GONE = "works", "set aside", "gone"


@dataclass
class DeviceProgress:
    """One device. state: works, set aside or gone; why: the reason. joined: how often it has."""

    name: str
    kind: str = ""
    host: str = ""
    state: str = WORKS
    why: str = ""
    joined: int = 0


@dataclass
class DevicesProgress:
    """Fed by the driver; may be read from any thread."""

    devices: dict[str, DeviceProgress] = field(default_factory=dict)

    def joined(self, name: str, opened: Opened) -> None:
        """A device is there, new or again."""
        one = self._is(name, WORKS)
        one.kind, one.host = opened.kind, opened.host
        one.joined += 1

    def gone(self, name: str, why: str) -> None:
        """A device is not there any more."""
        self._is(name, GONE, why)

    def set_aside(self, name: str, kind: str, why: str) -> None:
        """A device gets no more work."""
        one = self._is(name, ASIDE, why)
        one.kind = kind or one.kind

    def _is(self, name: str, state: str, why: str = "") -> DeviceProgress:
        one = self.devices.setdefault(name, DeviceProgress(name))
        one.state, one.why = state, why
        return one

    def line(self) -> str:
        """Returns how many devices are in each state, for the terminal."""
        states = Counter(one.state for one in [*self.devices.values()])
        others = (f"{states[state]} {state}" for state in (ASIDE, GONE) if states[state])
        return ", ".join((count(states[WORKS], "device"), *others))

    def notes(self) -> list[str]:
        """Returns a line for each device that was set aside, or that was gone at the end."""
        return [
            f"{one.name}{f' ({one.kind})' if one.kind else ''} is {one.state}: {one.why}"
            for one in self.devices.values()
            if one.state != WORKS
        ]
