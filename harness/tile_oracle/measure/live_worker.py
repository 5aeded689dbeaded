"""One worker process, from start to end: commands to it, and its messages while it is idle or runs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress

from tile_oracle.measure.child import Child
from tile_oracle.measure.commands import Final, Load, Open, Run, RunsKernels, Turn
from tile_oracle.measure.messages import Conversation, checked
from tile_oracle.measure.protocol import ChannelClosed, ChannelGarbled, Message
from tile_oracle.problem import Problem

QUIET_LIMIT_S = 1800.0
"""Limit for a worker's wait for the device; after that its silence counts as a fault."""
_LOOK_S = 2.0
"""Interval between checks of an idle worker, in seconds."""
_MOST_STOPPED_LOOKS = 5
"""Successive checks that find the worker stopped by a signal before it is replaced: 10 s."""
_STOLEN_S = 2.0
"""How long an idle worker may appear to have missed a command, since one may be in flight."""


class Silence(Exception):
    """The worker did not answer in time. missed_command: it is idle although a command was sent to it."""

    def __init__(self, missed_command: bool) -> None:
        super().__init__()
        self.missed_command = missed_command


class LiveWorker:
    """A worker and the commands that it has not answered yet.

    loaded: the problem whose data it holds, or None. loading: one that it was sent and has not answered yet,
    or None. since: start of the running kernel, by this process's clock (time.monotonic).
    """

    def __init__(self, child: Child) -> None:
        self.child = child
        self.loaded: Problem | None = None
        self.loading: Problem | None = None
        self.since = 0.0
        self._talk = Conversation()

    @property
    def is_busy(self) -> bool:
        """Whether results are outstanding."""
        return self._talk.open

    @property
    def running(self) -> int | None:
        """Identity of the kernel that runs, or None."""
        return self._talk.running

    def ask(self, command: Open | Load) -> None:
        """Sends a command that runs no kernel; `answer` follows. Raises ChannelClosed."""
        self.child.channel.send(command)
        self._talk.handed()

    def answer(self, limit_s: float, *kinds: str) -> Message | None:
        """Returns the answer to `ask`, a message of one of these kinds, or None after `limit_s`. Raises
        ChannelClosed."""
        deadline = time.monotonic() + limit_s
        while True:
            message = self._receive_while_idle(deadline - time.monotonic())
            if message is None:
                return None
            message = checked(message)
            if any(kind in message for kind in kinds):
                return message
            if "resting" not in message:
                raise ChannelGarbled
            self._talk.resting(message)

    def run(self, command: RunsKernels) -> None:
        """Sends a command that the worker answers with results, one for each identity in it."""
        runs: Sequence[Run | Turn] = command.runs if isinstance(command, Final) else [command]
        for one in runs:
            one.token = secrets.token_hex(8)
        # A dead worker may have left messages to read, which also tell the kernel it died in. Its death
        # is noticed after the last of them.
        with suppress(ChannelClosed):
            self.child.channel.send(command)
        self._talk.handed()
        tokens = {one.id: one.token for one in runs}
        self._talk.expect(tokens, interleaved=isinstance(command, Final))

    def next_result(self, limit_s: float) -> Message:
        """Returns the result of the next finished kernel. `limit_s`: time limit of a kernel.

        Raises Silence after it, or when no kernel starts, and ChannelClosed when the worker dies.
        """
        quiet = QUIET_LIMIT_S
        while True:
            if self._talk.running is None:
                message = self._receive_while_idle(quiet)
            else:
                left = self.since + limit_s - time.monotonic()
                message = self.child.channel.receive(max(0.0, left))
            if message is None:
                raise Silence(missed_command=quiet < QUIET_LIMIT_S)
            message = checked(message)
            quiet = QUIET_LIMIT_S
            if "began" in message:
                self._talk.began(message)
                # By this process's clock: the worker may have been blocked on a full pipe.
                self.since = time.monotonic()
            elif "done" in message:
                self._talk.done(message)
            elif "settled" in message:
                return self._talk.settled(message)
            elif "resting" in message:
                if self._talk.resting(message):
                    quiet = _STOLEN_S
            else:
                raise ChannelGarbled

    def _receive_while_idle(self, limit_s: float) -> Message | None:
        """Returns the next message of a worker that runs no kernel, or None after `limit_s`.

        Kills a worker that is stopped by a signal, since nothing else may ever continue it. Raises
        ChannelClosed.
        """
        deadline = time.monotonic() + limit_s
        # Count checks, not seconds: if this process was stopped too, both may have been continued together.
        stopped = 0
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            message = self.child.channel.receive(min(left_s, _LOOK_S))
            if message is not None or left_s <= _LOOK_S:
                return message
            stopped = stopped + 1 if self.child.stopped else 0
            if stopped >= _MOST_STOPPED_LOOKS:
                self.child.kill(f"was stopped for {stopped * _LOOK_S:g} s and has been killed")
                raise ChannelClosed
