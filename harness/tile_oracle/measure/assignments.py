"""What driver and devices send each other. Everything here can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tile_oracle.libraries.offers import Offers
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.targets.base import TargetOptions


@dataclass(frozen=True)
class DeviceSettings:
    """How a device measures; the same for all devices of a session.

    run: name of the run, for its rows. offers: what the libraries of --kernels offer. problems: ids of the
    session's problems, which some sources ask for. journals: the session's journal folder where it is on the
    devices' machine, "" elsewhere.
    """

    target: str
    options: TargetOptions
    sweep: SweepSettings
    run: str
    offers: tuple[Offers, ...] = ()
    problems: tuple[str, ...] = ()
    journals: str = ""


@dataclass(frozen=True)
class Binaries:
    """Binaries that a device needs.

    shipped: kernel name -> a reference that the engine resolves to a Shipment; a device asks for it only if
    its machine does not have the binary. failed: kernel name -> the compiler's output of a kernel that does
    not build.
    """

    shipped: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


class Shipment(NamedTuple):
    """One binary. key: its content hash (tile_oracle.compiling.cache). facts: of the cache's entry."""

    key: str
    content: bytes
    source: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """An assignment for a device.

    kernels: names of the kernels to sweep. finals: measure the leaders again afterwards. known: results of
    the problem's other kernels. picks: names of kernels that are measured again with the leaders. again:
    instead of a sweep, the kernels of these are timed again as rows of round `again_round`. upcoming: the
    problem that the device probably begins next, "" for none.
    """

    number: int
    problem: str
    kernels: tuple[str, ...] = ()
    finals: bool = True
    known: tuple[Measurement, ...] = ()
    picks: tuple[str, ...] = ()
    again: tuple[Measurement, ...] = ()
    again_round: int = 0
    upcoming: str = ""
    binaries: Binaries = field(default_factory=Binaries)


class Row(NamedTuple):
    """A device's result of a pair. line: the row, as a line of a journal."""

    number: int
    result: Measurement
    line: bytes


class Ended(NamedTuple):
    """A device has ended an assignment. lost: why the device no longer responds, "" while it does. failed:
    why the assignment could not be measured."""

    number: int
    lost: str = ""
    failed: str = ""


Message = Row | Ended


class Opened(NamedTuple):
    """A device is open. kind: its own name, equal for devices that can be compared. cache: the folder where
    it keeps binaries, "" if it keeps none."""

    kind: str
    host: str
    cache: str = ""
