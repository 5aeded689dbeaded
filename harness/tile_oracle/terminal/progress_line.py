"""One line of progress on a stream, for every wait that is long enough to wonder about.

with wait("reading records", total) as done:     # in a library: silent unless a front door shows waits
    done(bytes_read)

with waits_shown_on(sys.stderr): ...             # in a front door
with waits_shown_on(sys.stderr, "tile-oracle runs merge"): ...     # on a terminal, also what no wait tells of
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
        if (shown := _SHOWN.get()) is not None and shown.line is not self:
            shown.step_aside()
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


class _Shown:
    """The line of a front door: the outermost wait, else what it always shows, whenever nothing else was
    written for two seconds."""

    def __init__(self, stream: TextIO, always: _Wait | None) -> None:
        self.line = ProgressLine(stream)
        self.wait: _Wait | None = None
        self._always = always
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._quiet_since = time.monotonic()
        self._teller = threading.Thread(target=self._tell, daemon=True)
        self._teller.start()

    def step_aside(self) -> None:
        """Removes the line because something else, such as another line or another wait, is shown."""
        with self._lock:
            self.line.erase()
            self._quiet_since = time.monotonic()

    def end(self) -> None:
        self._ended.set()
        self._teller.join()
        self.line.erase()

    def _tell(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            with self._lock:
                state, now = self.wait or self._always, time.monotonic()
                if state is not None and now - self._quiet_since >= _QUIET_S:
                    self.line.show(state.text(now))


_SHOWN: ContextVar[_Shown | None] = ContextVar("_SHOWN", default=None)
"""Where waits are shown; None: nowhere."""


@contextmanager
def waits_shown_on(stream: TextIO, always: str = "") -> Iterator[None]:
    """Shows the waits within the block on a stream. always: what a terminal shows, with the time so far,
    whenever nothing else was shown for two seconds; whatever is written to stdout and stderr meanwhile takes
    the line's place."""
    is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    shown = _Shown(stream, _Wait(always, 0.0) if always and is_terminal else None)
    streams, token = (sys.stdout, sys.stderr), _SHOWN.set(shown)
    if always and is_terminal:
        sys.stdout, sys.stderr = (cast(TextIO, _Tidy(one, shown)) for one in streams)
    try:
        yield
    finally:
        shown.end()
        sys.stdout, sys.stderr = streams
        _SHOWN.reset(token)


@contextmanager
def wait(what: str, total: float = 0.0) -> Iterator[Callable[[float], None]]:
    """Yields a piece of work that may take long: it is shown from its third second on, with the time left
    where `total` is known. What the block receives counts an amount of work as done."""
    shown = _SHOWN.get()
    if shown is None or shown.wait is not None:  # within another wait
        yield lambda amount: None
        return
    shown.step_aside()
    shown.wait = state = _Wait(what, total)
    try:
        yield state.add
    finally:
        shown.wait = None
        shown.step_aside()


def steps(what: str, ones: Sequence[_One], weights: Sequence[float] | None = None) -> Iterator[_One]:
    """Yields the given things, one after the other, as a `wait`. weights: the work for each."""
    listed = list(weights) if weights is not None else [1.0] * len(ones)
    with wait(what, sum(listed)) as done:
        for one, weight in zip(ones, listed, strict=True):
            yield one
            done(weight)


class _Tidy:
    """A stream before whose output the line is removed."""

    def __init__(self, stream: TextIO, shown: _Shown) -> None:
        self._stream, self._shown = stream, shown

    def write(self, text: str) -> int:
        self._shown.step_aside()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Wait:
    """The state of one wait."""

    def __init__(self, what: str, total: float) -> None:
        self._what, self._total, self._done = what, total, 0.0
        self._started = self._last = time.monotonic()

    def add(self, amount: float) -> None:
        self._done += amount
        self._last = time.monotonic()

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
