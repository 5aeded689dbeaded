"""One line of progress on a stream."""

from __future__ import annotations

import time
from typing import TextIO

_PLAIN_INTERVAL_S = 10.0


class ProgressLine:
    """Rewritten in place on a terminal; elsewhere a new line every ten seconds. The last one stays."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty()
        self._shown_at = time.monotonic()
        self._open = False

    def show(self, text: str) -> None:
        """Shows the progress, unless the last line is too recent."""
        if self._in_place:
            self._stream.write(f"\r\x1b[K{text}")
            self._open = True
        elif time.monotonic() - self._shown_at >= _PLAIN_INTERVAL_S:
            self._stream.write(text + "\n")
            self._shown_at = time.monotonic()
        self._stream.flush()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
