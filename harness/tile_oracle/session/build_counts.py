"""How many kernels the workers of pytest-xdist have built, counted in its controller.

Every worker builds the kernels that it needs, into one cache: what one has compiled the others find there. So
the controller counts names, not builds. Workers send them through a channel of execnet, which carries
messages to the controller besides those of pytest-xdist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from execnet.gateway_base import BaseGateway, Channel

CHANNEL = "tile_oracle_builds"
"""The channel's name in a worker's `workerinput`."""

_INTERVAL_S = 0.5


class BuildCounts:
    """The controller's end."""

    def __init__(self) -> None:
        self._built: set[str] = set()
        self._wanted = 0

    def channel_from(self, gateway: BaseGateway) -> Channel:
        """A channel for one worker, to be sent to it; what it sends back is counted."""
        channel = gateway.newchannel()
        channel.setcallback(self._take)
        return channel

    def __call__(self) -> tuple[int, int]:
        """How many kernels are built, and how many are wanted."""
        return len(self._built), self._wanted

    def _take(self, message: tuple[list[str], int]) -> None:
        built, wanted = message
        self._built.update(built)
        self._wanted = max(self._wanted, wanted)


class BuildTeller:
    """A worker's end: a thread that sends the kernels that were built meanwhile.

    built: the names of all kernels built so far. wanted: how many are wanted.
    """

    def __init__(self, channel: Channel, built: Callable[[], Iterable[str]], wanted: int) -> None:
        self._channel, self._built, self._wanted = channel, built, wanted
        self._told: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="tile-oracle-builds", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Sends nothing any more. Safe to call twice."""
        self._ended.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._ended.wait(_INTERVAL_S) and len(self._told) < self._wanted:
            new = [name for name in self._built() if name not in self._told]
            if not new:
                continue
            try:
                self._channel.send((new, self._wanted))
            except OSError:  # the controller is gone
                return
            self._told.update(new)
