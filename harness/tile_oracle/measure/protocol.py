"""How parent and worker talk: one JSON object a line, over a socket of their own.

Standard output and error stay with the kernel under test: whatever it prints never reaches a channel. The
parent's side asks the operating system who wrote each part: what another process wrote is no message.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections import deque
from contextlib import suppress
from typing import Any

Message = dict[str, Any]

_MAX_LINE_BYTES = 64 << 20
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group."""


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

    def send(self, *messages: Message) -> None:
        """Messages that belong together wake the other side once.

        Raises ChannelClosed when that is gone, or this one closed.
        """
        lines = [json.dumps(message, separators=(",", ":")).encode() + b"\n" for message in messages]
        data = memoryview(b"".join(lines))
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

    def _read(self) -> bytes:
        return os.read(self.read_fd, 1 << 20)

    def _fill(self) -> None:
        try:
            data = self._read()
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


class OwnChannel(Channel):
    """The worker's side: for the process that made it alone.

    A kernel may fork and return in both processes; the copy ends here, before it takes a command or gives an
    answer.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        super().__init__(read_fd, write_fd)
        self._owner = os.getpid()

    def send(self, *messages: Message) -> None:
        self._end_if_copy()
        super().send(*messages)

    def receive(self, timeout: float | None = None) -> Message | None:
        self._end_if_copy()
        return super().receive(timeout)

    def _end_if_copy(self) -> None:
        if os.getpid() != self._owner:
            os._exit(0)


class WatchedChannel(Channel):
    """The parent's side of a socket: takes messages of one process alone, the first that wrote.

    The operating system says who wrote; it never joins what two processes wrote. What another process writes
    breaks the conversation: ChannelGarbled.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket = end
        self.sender: int | None = None
        """The other side's process, once it has said something."""
        super().__init__(end.fileno(), end.fileno())

    def _read(self) -> bytes:
        room = socket.CMSG_SPACE(_CREDENTIALS.size)
        data, ancillary, _, _ = self._socket.recvmsg(1 << 20, room)
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])[0]
                if data and self.sender is None:
                    self.sender = sender
                if data and sender != self.sender:
                    self._garbled = True
                    raise ChannelGarbled
        return data

    def close(self) -> None:
        """Safe to call twice."""
        self.read_fd = self.write_fd = -1
        self._socket.close()
