"""One line of progress on a stream, for every wait that is long enough to wonder about.

with wait("reading records", total) as done:     # in a library: silent unless a front door shows waits
    done(bytes_read)

with waits_shown_on(sys.stderr): ...             # in a front door
with never_silent("tile-oracle runs merge"): ...     # on a terminal: what no wait tells of
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, TypeVar, cast

from tile_oracle.terminal.plain_text import as_text

_PLAIN_INTERVAL_S = 10.0
_QUIET_S = 2.0
"""A shorter wait is not shown."""
_INTERVAL_S = 0.5

_One = TypeVar("_One")


class ProgressLine:
    """Rewritten in place on a terminal, and cut to its width; elsewhere a new line every ten seconds. The
    last one stays, unless it is erased."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = getattr(stream, "raw_stream", stream)
        self._in_place = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown_at = time.monotonic()
        self._open = False

    def show(self, text: str) -> None:
        """Shows the progress, unless the last line is too recent."""
        text = as_text(text)
        _Fallback.step_aside(self)
        if self._in_place:
            # A line as wide as the terminal would be wrapped, and could not be rewritten.
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{text[: max(width, 1)]}")
            self._open = True
        elif time.monotonic() - self._shown_at >= _PLAIN_INTERVAL_S:
            self._stream.write(text + "\n")
            self._shown_at = time.monotonic()
        self._stream.flush()

    def erase(self) -> None:
        """Removes the line from a terminal."""
        if self._open:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._open = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._stream.write("\n")
            self._stream.flush()


_STREAM: ContextVar[TextIO | None] = ContextVar("_STREAM", default=None)
"""Where waits are shown; None: nowhere, or within another wait."""


@contextmanager
def waits_shown_on(stream: TextIO) -> Iterator[None]:
    """Shows the waits within the block on a stream."""
    token = _STREAM.set(stream)
    try:
        yield
    finally:
        _STREAM.reset(token)


@contextmanager
def wait(what: str, total: float = 0.0) -> Iterator[Callable[[float], None]]:
    """Yields a piece of work that may take long: it is shown from its third second on, with the time left
    where `total` is known. What the block receives counts an amount of work as done."""
    stream = _STREAM.get()
    if stream is None:
        yield lambda amount: None
        return
    state = _Wait(what, total)
    token = _STREAM.set(None)
    ended = threading.Event()
    teller = threading.Thread(target=state.tell, args=(ProgressLine(stream), ended), daemon=True)
    teller.start()
    try:
        yield state.add
    finally:
        ended.set()
        teller.join()
        _STREAM.reset(token)


def steps(what: str, ones: Sequence[_One], weights: Sequence[float] | None = None) -> Iterator[_One]:
    """Yields the given things, one after the other, as a `wait`. weights: the work for each."""
    listed = list(weights) if weights is not None else [1.0] * len(ones)
    with wait(what, sum(listed)) as done:
        for one, weight in zip(ones, listed, strict=True):
            yield one
            done(weight)


@contextmanager
def never_silent(what: str, stream: TextIO) -> Iterator[None]:
    """On a terminal: shows how long the block has been at work whenever nothing else was shown for two
    seconds. Whatever is written to stdout and stderr meanwhile takes the line's place."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    fallback = _Fallback(what, stream)
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Tidy(one, fallback)) for one in streams)
    fallback.start()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        fallback.end()


class _Fallback:
    """The line that is shown where no other is."""

    _current: _Fallback | None = None

    def __init__(self, what: str, stream: TextIO) -> None:
        self._line, self._state = ProgressLine(stream), _Wait(what, 0.0)
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._quiet_since = time.monotonic()
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def start(self) -> None:
        _Fallback._current = self
        self._teller.start()

    def end(self) -> None:
        _Fallback._current = None
        self._ended.set()
        self._teller.join()

    @classmethod
    def step_aside(cls, line: ProgressLine | None = None) -> None:
        """Removes the line because something else, such as another line, is shown."""
        current = cls._current
        if current is None or current._line is line:
            return
        with current._lock:
            current._line.erase()
            current._quiet_since = time.monotonic()

    def _tell(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            with self._lock:
                now = time.monotonic()
                if now - self._quiet_since >= _QUIET_S:
                    self._line.show(self._state.text(now))
        with self._lock:
            self._line.erase()


class _Tidy:
    """A stream before whose output the fallback's line is removed."""

    def __init__(self, stream: TextIO, fallback: _Fallback) -> None:
        self._stream, self._fallback = stream, fallback

    def write(self, text: str) -> int:
        self._fallback.step_aside()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Wait:
    """The state of one wait, which a thread of its own shows."""

    def __init__(self, what: str, total: float) -> None:
        self._what, self._total, self._done = what, total, 0.0
        self._started = self._last = time.monotonic()

    def add(self, amount: float) -> None:
        self._done += amount
        self._last = time.monotonic()

    def tell(self, line: ProgressLine, ended: threading.Event) -> None:
        if ended.wait(_QUIET_S):
            return
        while True:
            line.show(self.text(time.monotonic()))
            if ended.wait(_INTERVAL_S):
                break
        line.erase()

    def text(self, now: float) -> str:
        """Returns what is waited for, the share done, and the time left, which does not grow within a
        step."""
        if not 0 < self._done < self._total:
            return f"{self._what}: {clock(now - self._started)} so far"
        left_s = (self._total - self._done) * (self._last - self._started) / self._done
        share = int(100 * self._done / self._total)
        return f"{self._what}: {share} %, {clock(max(0.0, left_s - (now - self._last)))} left"


def clock(seconds: float) -> str:
    """Returns a time as m:ss or h:mm:ss."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
