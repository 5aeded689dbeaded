"""Parent and worker talk in lines of JSON over pipes: whole, torn, many at once, garbage, closed."""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from tests.processes import LONGEST_S
from tile_oracle.measure import protocol
from tile_oracle.measure.protocol import Channel, ChannelClosed, ChannelGarbled, OwnChannel, WatchedChannel


class Line:
    """A channel and the bare pipe ends of the other side."""

    def __init__(self) -> None:
        there, self.write_fd = os.pipe()
        self.read_fd, here = os.pipe()
        self.channel = Channel(there, here)

    def write(self, data: bytes) -> None:
        os.write(self.write_fd, data)

    def close(self) -> None:
        self.channel.close()
        for fd in (self.write_fd, self.read_fd):
            if fd >= 0:
                os.close(fd)

    def hang_up(self) -> None:
        os.close(self.write_fd)
        os.close(self.read_fd)
        self.write_fd = self.read_fd = -1


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


def test_a_message_comes_through_both_ways(line: Line) -> None:
    line.channel.send({"do": "run", "text": "ü\n\r\u2028\0"})
    sent = os.read(line.read_fd, 1 << 16)
    assert sent.count(b"\n") == 1
    line.write(sent)
    assert line.channel.receive(LONGEST_S) == {"do": "run", "text": "ü\n\r\u2028\0"}


def test_a_torn_message_is_waited_for(line: Line) -> None:
    line.write(b'{"a"')
    assert line.channel.receive(0) is None
    line.write(b':1}\n{"b":')
    assert line.channel.receive(0) == {"a": 1}
    assert line.channel.receive(0) is None
    line.write(b"2}\n")
    assert line.channel.receive(0) == {"b": 2}
    waits_ms: list[float] = []
    line.channel._readable = SimpleNamespace(poll=waits_ms.append)
    assert line.channel.receive(-1.0) is None
    assert waits_ms == [0.0], "negative: without a limit"


def receive_all(channel: Channel) -> None:
    """Until something is raised."""
    while True:
        channel.receive(LONGEST_S)


@pytest.mark.parametrize(
    "garbage", [b"hello\n", b"[1,2]\n", b"\xff\xfe\n", b"null\n", b"\n", b"[" * 40_000 + b"\n"]
)
def test_garbage_is_reported_after_earlier_messages(garbage: bytes, line: Line) -> None:
    writer = threading.Thread(target=line.write, args=(b'{"a":1}\n{"a":2}\n' + garbage + b'{"a":3}\n',))
    writer.start()
    assert line.channel.receive(LONGEST_S) == {"a": 1}
    assert line.channel.receive(LONGEST_S) == {"a": 2}
    for _ in range(2):
        with pytest.raises(ChannelGarbled):
            receive_all(line.channel)
    writer.join()


def test_an_endless_line_is_garbage(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_MAX_LINE_BYTES", 1000)
    line.write(b"x" * 1001)
    with pytest.raises(ChannelGarbled):
        line.channel.receive(LONGEST_S)


def test_messages_before_the_end_are_received(line: Line) -> None:
    line.write(b'{"a":1}\n{"torn"')
    line.hang_up()
    assert line.channel.receive(LONGEST_S) == {"a": 1}
    with pytest.raises(ChannelClosed):
        line.channel.receive(LONGEST_S)
    with pytest.raises(ChannelClosed):
        line.channel.send({})


def test_closing_twice_does_not_close_another_file(line: Line) -> None:
    line.channel.close()
    assert (line.channel.read_fd, line.channel.write_fd) == (-1, -1)
    taken = os.pipe()  # the freed numbers
    line.channel.close()
    os.write(taken[1], b"still open")
    assert os.read(taken[0], 100) == b"still open"
    for fd in taken:
        os.close(fd)
    with pytest.raises(ChannelClosed):
        line.channel.send({})


def test_a_watched_channel_that_is_closed_sends_nothing() -> None:
    ours, theirs = socket.socketpair()
    channel = WatchedChannel(ours)
    channel.close()
    channel.close()
    assert channel.read_fd == channel.write_fd == -1
    with pytest.raises(ChannelClosed):
        channel.send({})
    assert theirs.recv(100) == b""
    theirs.close()


def test_a_copy_of_the_worker_neither_reads_commands_nor_answers() -> None:
    does: tuple[Callable[[OwnChannel], object], ...] = (
        lambda own: own.send({"a": 1}),
        lambda own: own.receive(LONGEST_S),
    )
    for act in does:
        (there, write_fd), (read_fd, here) = os.pipe(), os.pipe()
        channel = OwnChannel(there, here)
        os.write(write_fd, b'{"command":1}\n')
        if (copy := os.fork()) == 0:
            act(channel)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 0
        assert channel.receive(LONGEST_S) == {"command": 1}
        channel.send({"b": 2})
        assert os.read(read_fd, 100) == b'{"b":2}\n'
        channel.close()
        os.close(write_fd)
        os.close(read_fd)


def test_descriptors_above_1023_work() -> None:
    """A session with many files open: select() could not wait for these."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2100:
        pytest.skip(f"this machine allows {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2100), hard))
    there, write_fd = os.pipe()
    high = 2000
    os.dup2(there, high)
    os.close(there)
    channel = Channel(high, write_fd)
    try:
        channel.send({"a": 1})
        assert channel.receive(LONGEST_S) == {"a": 1}
    finally:
        channel.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_long_message_reaches_a_slow_reader_complete(line: Line) -> None:
    text = "x" * 1_000_000
    sender = threading.Thread(target=line.channel.send, args=({"text": text},))
    sender.start()
    data = b""
    while not data.endswith(b"\n"):
        data += os.read(line.read_fd, 1 << 16)
    sender.join()
    assert json.loads(data) == {"text": text}
