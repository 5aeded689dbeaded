"""The channel between parent and worker: one JSON object per line, over a dedicated socket.

Standard output and error are left to the kernel under test, so its output never gets into the channel. The
parent's side asks the operating system which process wrote the data, and rejects data of other processes.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections import deque
from contextlib import suppress
from typing import Any

from msgspec import Struct

from tile_oracle.files.json_bytes import decode_json, encode_json

Message = dict[str, Any]

_MAX_LINE_BYTES = 64 << 20
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process id, user, group."""


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelGarbled(ChannelClosed):
    """The other side, or a kernel that wrote to its socket, sent something that is not a message."""


class Channel:
    """One side of the channel."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._buffer = bytearray()
        self._messages: deque[Message] = deque()
        self._garbled = False
        # Not select(): it does not support descriptors above 1023.
        self._readable = select.poll()
        self._readable.register(read_fd, select.POLLIN)

    def send(self, *messages: Message | Struct) -> None:
        """Sends messages in one write, so that they wake the other side once.

        Raises ChannelClosed when either side is closed.
        """
        lines = [encode_json(message) + b"\n" for message in messages]
        data = memoryview(b"".join(lines))
        try:
            while data:
                data = data[os.write(self.write_fd, data) :]
        except OSError:
            raise ChannelClosed from None

    def receive(self, timeout: float | None = None) -> Message | None:
        """Returns the next message, or None when none arrives within `timeout` seconds (None: no time limit).

        Raises ChannelClosed or ChannelGarbled once all earlier messages have been returned.
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
                message = decode_json(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self._garbled = True
                return
            self._messages.append(message)
        del self._buffer[:end]

    def close(self) -> None:
        """Safe to call twice. Each descriptor is closed only once, since its number may be reused."""
        descriptors, self.read_fd, self.write_fd = {self.read_fd, self.write_fd} - {-1}, -1, -1
        for fd in descriptors:
            with suppress(OSError):
                os.close(fd)


class OwnChannel(Channel):
    """The worker's side, for use only by the process that created it.

    A kernel may fork and return in both processes. The copy exits here before it reads a command or sends an
    answer.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        super().__init__(read_fd, write_fd)
        self._owner = os.getpid()

    def send(self, *messages: Message | Struct) -> None:
        self._end_if_copy()
        super().send(*messages)

    def receive(self, timeout: float | None = None) -> Message | None:
        self._end_if_copy()
        return super().receive(timeout)

    def _end_if_copy(self) -> None:
        if os.getpid() != self._owner:
            os._exit(0)


class WatchedChannel(Channel):
    """The parent's side of a socket. It accepts messages only from the first process that writes.

    The operating system reports the writing process, and never merges the data of two processes. Data from
    any other process raise ChannelGarbled.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket = end
        self.sender: int | None = None
        """Process id of the other side, known after its first message."""
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
