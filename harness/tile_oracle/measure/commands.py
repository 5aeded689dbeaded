"""The commands that a worker takes. Each is one message of the channel; `do` says which."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tile_oracle.measure.protocol import Message
from tile_oracle.measure.timing_plan import TimingPlan


class _Command(Struct, tag_field="do", tag=str.lower):
    """Base of all commands."""


class Quit(_Command):
    """End the worker."""


class Open(_Command):
    """Open the device. attempts: the session's slot (record.attempts), "" for none. samples: send every
    sample."""

    device_module: str
    timing: TimingPlan
    device_options: dict[str, Any] = {}
    cold_cache: bool = False
    attempts: str = ""
    samples: bool = False


class Load(_Command):
    """Load a problem, by its row. careful: a session has died at it. made: see Device.load."""

    problem: dict[str, Any]
    seed: int
    careful: bool = False
    made: str = ""


class Run(_Command):
    """Check and time a kernel. best_ms: the fastest median of the problem. lost_ms: a kernel has lost that
    takes at least this long, so that its first checked run is enough."""

    id: int
    binary: str
    kernel: str = ""
    best_ms: float | None = None
    lost_ms: float | None = None
    token: str = ""


class Turn(Struct):
    """One kernel of Final. count: its samples in each pass."""

    id: int
    kernel: str
    binary: str
    count: int
    token: str = ""


class Final(_Command):
    """Time kernels interleaved. doubtful: identities of those that were noisy in the sweep."""

    runs: list[Turn]
    passes: int
    doubtful: list[int]


RunsKernels = Run | Final
Command = Quit | Open | Load | RunsKernels


def command_in(message: Message) -> Command:
    """Returns the command in a message. Raises msgspec.ValidationError."""
    command: Command = msgspec.convert(message, Command)
    return command
