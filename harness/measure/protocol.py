"""How parent and worker talk: one JSON object a line, over two pipes of their own.

Standard output and error stay with the kernel under test: whatever it prints never reaches a channel.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections import deque
from contextlib import suppress
from typing import Any

Message = dict[str, Any]

_MAX_LINE_BYTES = 64 << 20


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelGarbled(ChannelClosed):
    """The other side, or a kernel that found its pipe, sent what is not a message."""


class Channel:
    """Both ends of a conversation, seen from one side."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._buffer = bytearray()
        self._messages: deque[Message] = deque()
        self._garbled = False
        # Not select(): it cannot wait for descriptors above 1023.
        self._readable = select.poll()
        self._readable.register(read_fd, select.POLLIN)

    def send(self, message: Message) -> None:
        """Raises ChannelClosed when the other side is gone, or this one closed."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self.write_fd, data) :]
        except OSError:
            raise ChannelClosed from None

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or None when none came within `timeout` seconds (None: wait for ever).

        Raises ChannelClosed, or ChannelGarbled, after the last message that came before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._messages:
            if self._garbled:
                raise ChannelGarbled
            wait_ms = None if deadline is None else 1e3 * max(0.0, deadline - time.monotonic())
            if not self._readable.poll(wait_ms):
                return None
            self._fill()
        return self._messages.popleft()

    def _fill(self) -> None:
        try:
            data = os.read(self.read_fd, 1 << 20)
        except OSError:
            raise ChannelClosed from None
        if not data:
            raise ChannelClosed
        self._buffer += data
        end = self._buffer.rfind(b"\n", len(self._buffer) - len(data)) + 1
        if not end and len(self._buffer) > _MAX_LINE_BYTES:
            raise ChannelGarbled
        for line in bytes(self._buffer[:end]).splitlines():
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self._garbled = True
                return
            self._messages.append(message)
        del self._buffer[:end]

    def close(self) -> None:
        """Safe to call twice: a number is closed once, it may be another file's by then."""
        descriptors, self.read_fd, self.write_fd = {self.read_fd, self.write_fd} - {-1}, -1, -1
        for fd in descriptors:
            with suppress(OSError):
                os.close(fd)
