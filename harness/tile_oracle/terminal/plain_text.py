"""Text from outside (names of sets, kernels, files, devices; messages of compilers) as what it is: text.

A terminal obeys escape sequences, a viewer reorders letters at bidirectional marks, and CI does what a line
of a log says: GitHub where it begins with `::`, GitHub and Azure Pipelines where it holds `##[` or `##vso[`.
`as_text` writes such characters as \\uXXXX, which is right within JSON, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\r(?!\n)"
    r"|^(?P<begin>\s*):(?=:)|(?<=#)#(?=\[|vso\[)",
    re.MULTILINE,
)


def as_text(text: str) -> str:
    """Returns the text, with what a terminal, a viewer or CI would obey as \\uXXXX. Line ends and tabs
    stay."""
    return _OBEYED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    before = found["begin"] or ""
    return f"{before}\\u{ord(found[0][len(before)]):04x}"


class OutputFailed(Exception):
    """Standard output takes no more text: its disk is full, or it is closed. The message says why."""


class PlainStream:
    """A stream that writes text `as_text`. raw_stream: for the program's own escape sequences."""

    def __init__(self, stream: TextIO) -> None:
        self.raw_stream = stream

    def write(self, text: str) -> int:
        """Returns the number of characters of the text."""
        self.raw_stream.write(as_text(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw_stream, name)


class _Output(PlainStream):
    """Standard output, which a command cannot do without."""

    def write(self, text: str) -> int:
        with _told():
            return super().write(text)

    def flush(self) -> None:
        with _told():
            self.raw_stream.flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise OutputFailed(getattr(error, "strerror", None) or str(error)) from None


@contextmanager
def plain_output() -> Iterator[None]:
    """Makes stdout and stderr plain streams within the block. Writing to stdout then raises OutputFailed, or
    BrokenPipeError when its reader is gone."""
    before = sys.stdout, sys.stderr
    sys.stdout = before[0] and cast(TextIO, _Output(before[0]))
    sys.stderr = before[1] and cast(TextIO, PlainStream(before[1]))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
