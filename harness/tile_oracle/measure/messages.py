"""Validates a worker's messages. Anything invalid is blamed on the kernel that runs.

A kernel runs in the worker's process and can write into its channel. So the types and values of each message
are validated, and `Conversation` checks the order: results come in the order in which kernels were sent, each
after its `began`, and a result counts only once the worker has confirmed it with the token of the command.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from tile_oracle.measure.protocol import ChannelGarbled, Message

_Id = Annotated[int, Meta(ge=-1, le=1 << 62)]
_Count = Annotated[int, Meta(ge=0, le=1 << 62)]
_Text = Annotated[str, Meta(max_length=100_000)]
_Fact = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]


class _Settled(Struct):
    settled: _Text
    dirty: list[_Text]
    unfair: list[_Text]
    processes: _Count


class _Done(Struct):
    done: _Id
    status: Literal["ok", "noisy", "untimed", "wrong", "flaky", "unsupported", "build_error", "device_lost"]
    kernel_seconds: float
    detail: _Text = ""
    check: _Text = "none"
    check_points: _Count = 0
    tainted: bool = False
    again: bool = False
    facts: dict[str, _Fact] = {}
    latency_ms: float | None = None
    latency_min_ms: float | None = None
    spread: float | None = None
    samples: _Count = 0
    precision: float | None = None
    sampling: Literal["", "full", "coarse", "exact", "censored"] = ""
    at_least_ms: float | None = None
    busy_ms: float = 0.0
    check_ms: float = 0.0
    sample_ms: list[float] = []
    state: dict[str, str | float | int | bool | None] | None = None


_KINDS: Mapping[str, type[Struct]] = {
    **{
        name: msgspec.defstruct(name, [(name, kind)])
        for name, kind in (
            ("opened", dict[Literal["name", "driver"], _Text]),
            *((name, _Text) for name in ("failed", "loaded", "refused")),
            ("began", _Id),
            ("resting", _Count),
        )
    },
    "settled": _Settled,
    "done": _Done,
}


def checked(message: Message) -> Message:
    """Returns a valid message. Raises ChannelGarbled for any other."""
    kinds = [kind for kind in _KINDS if kind in message]
    if len(kinds) != 1:
        raise ChannelGarbled
    try:
        read = msgspec.convert(message, _KINDS[kinds[0]])
    except msgspec.ValidationError:
        raise ChannelGarbled from None
    if isinstance(read, _Done) and not _plausible(read):
        raise ChannelGarbled
    return message


def _plausible(done: _Done) -> bool:
    """Returns whether the numbers of a result are plausible: finite, ordered, and present where required."""
    if not (math.isfinite(done.kernel_seconds) and done.kernel_seconds >= 0):
        return False
    if not all(math.isfinite(ms) and ms >= 0 for ms in (done.busy_ms, done.check_ms)):
        return False
    if done.precision is not None and not (math.isfinite(done.precision) and done.precision >= 0):
        return False
    if done.latency_ms is None and done.latency_min_ms is None:
        return done.samples == 0 and not done.sample_ms
    if done.latency_ms is None or done.latency_min_ms is None or done.samples < 1:
        return False
    at_least_ms = done.latency_ms if done.at_least_ms is None else done.at_least_ms
    if at_least_ms > done.latency_ms:
        return False
    times = (at_least_ms, done.latency_min_ms, done.latency_ms, *done.sample_ms)
    return all(math.isfinite(ms) and ms > 0 for ms in times) and done.latency_min_ms <= done.latency_ms


class Conversation:
    """Tracks commands and answers of one worker, and so which message may come next.

    running: identity of the kernel that runs or whose result is not confirmed yet, or None.
    """

    def __init__(self) -> None:
        self.running: int | None = None
        self._waiting: list[int] = []
        self._tokens: dict[int, str] = {}
        self._interleaved = False
        self._held: Message | None = None
        self._commands = 0

    @property
    def open(self) -> bool:
        """Whether results are outstanding."""
        return bool(self._waiting)

    def handed(self) -> None:
        """Counts a command that was sent."""
        self._commands += 1

    def expect(self, tokens: Mapping[int, str], *, interleaved: bool) -> None:
        """Registers expected results by identity. interleaved: all kernels run in turn before any result."""
        self._waiting += tokens
        self._tokens |= tokens
        self._interleaved = interleaved

    def began(self, message: Message) -> int:
        """Handles `began`; returns the identity of the kernel that now runs. Raises ChannelGarbled."""
        identity = message["began"]
        allowed = self._waiting if self._interleaved else self._waiting[:1]
        if identity not in allowed or self._held is not None:
            raise ChannelGarbled
        if self.running is not None and not self._interleaved:
            raise ChannelGarbled
        self.running = identity
        return int(identity)

    def done(self, message: Message) -> None:
        """Handles `done`: holds the result until it is confirmed. Raises ChannelGarbled."""
        identity = message["done"]
        in_turn = identity in self._waiting if self._interleaved else identity == self.running
        if self._held is not None or self.running is None or not in_turn:
            raise ChannelGarbled
        self._held = message

    def settled(self, message: Message) -> Message:
        """Handles `settled`; returns the confirmed result with the audit's findings. Raises
        ChannelGarbled."""
        if self._held is None or message["settled"] != self._tokens[self._held["done"]]:
            raise ChannelGarbled
        result, self._held = self._held, None
        identity = result["done"]
        self._waiting.remove(identity)
        del self._tokens[identity]
        if not (self._interleaved and self._waiting):
            self.running = None
        return {**result, **{name: message[name] for name in ("dirty", "unfair", "processes")}}

    def resting(self, message: Message) -> bool:
        """Handles `resting`; returns whether the idle worker has missed a command. Raises ChannelGarbled."""
        if self.running is not None or message["resting"] > self._commands:
            raise ChannelGarbled
        return bool(message["resting"] < self._commands)
