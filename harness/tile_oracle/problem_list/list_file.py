"""A file of problems while it is read: its lines, counted and bounded, and what is to be said of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tile_oracle.errors import ProblemSetError

MAX_LINE_BYTES = 64 * 2**10

_BOM = b"\xef\xbb\xbf"


class ListFile:
    """Reads line by line, so that no file, however large or strange, fills the memory.

    line: the number of the line that was read last, from 1. provenance: what comments at the head say.
    notes: what of the file was not read, for people.
    """

    def __init__(self, file: BinaryIO, path: Path, shown: str) -> None:
        """shown: the path as messages write it."""
        self.path = path
        self.shown = shown
        self.line = 0
        self.provenance: list[str] = []
        self.notes: list[str] = []
        self.sha256 = hashlib.sha256()
        self._file = file

    def lines(self) -> Iterator[str]:
        """Every line without its end. Raises ProblemSetError for what is no text."""
        while raw := self._file.readline(MAX_LINE_BYTES):
            self.sha256.update(raw)
            self.line += 1
            if len(raw) >= MAX_LINE_BYTES:
                raise self.error(f"a line of more than {MAX_LINE_BYTES:,} bytes: this is no problem set")
            if self.line == 1:
                raw = raw.removeprefix(_BOM)
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise self.error("not UTF-8 text; save the file as text in UTF-8") from None
            if "\0" in text:
                raise self.error("a zero byte: this is a binary file, not text")
            yield text

    def error(self, message: str, line: int | None = None) -> ProblemSetError:
        """An error with its place: the line that was read last, another one, or (0) the file alone."""
        number = self.line if line is None else line
        return ProblemSetError(f"{self.shown}:{number}: {message}" if number else f"{self.shown}: {message}")


def quoted(text: str) -> str:
    """A cell or a name for a message: one line, not too long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
