"""How parent and worker talk: one JSON object a line, over two pipes of their own.

Standard output and error stay with the kernel under test: whatever it prints never reaches a channel.
"""

from __future__ import annotations

import json
import os
import select
import time
from contextlib import suppress
from typing import Any

Message = dict[str, Any]

_MAX_LINE_BYTES = 64 << 20


class ChannelClosed(Exception):
    """The other side is gone, or sent what is not a message."""


class Channel:
    """Both ends of a conversation, seen from one side."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._buffer = bytearray()
        self._messages: list[Message] = []

    def send(self, message: Message) -> None:
        """Raises ChannelClosed when the other side is gone."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self.write_fd, data) :]
        except OSError:
            raise ChannelClosed from None

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or None when none came within `timeout` seconds (None: wait for ever)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._messages:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.read_fd], [], [], wait)
            if not ready:
                return None
            self._fill()
        return self._messages.pop(0)

    def _fill(self) -> None:
        try:
            data = os.read(self.read_fd, 1 << 20)
        except OSError:
            raise ChannelClosed from None
        if not data:
            raise ChannelClosed
        self._buffer += data
        end = self._buffer.rfind(b"\n") + 1
        if not end:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise ChannelClosed
            return
        for line in bytes(self._buffer[:end]).splitlines():
            try:
                message = json.loads(line)
            except ValueError:
                raise ChannelClosed from None
            if not isinstance(message, dict):
                raise ChannelClosed
            self._messages.append(message)
        del self._buffer[:end]

    def close(self) -> None:
        for fd in (self.read_fd, self.write_fd):
            with suppress(OSError):
                os.close(fd)
