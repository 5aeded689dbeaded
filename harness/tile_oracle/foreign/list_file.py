"""A file that is being read: counted lines of bounded length, provenance and notes."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from tile_oracle.errors import ProblemSetError
from tile_oracle.files.user_file import no_text

MAX_LINE_BYTES = 64 * 2**10

_BOM = b"\xef\xbb\xbf"


class ListFile:
    """Reads line by line, so that memory use is bounded for any file.

    line: the number of the last line read, from 1. provenance: comments at the top of the file. further:
    messages about ignored parts of the file. left_out, taken: reasons why rows or calls are no problem, and
    what those have beyond the problem that they are taken for, with their numbers.
    """

    def __init__(self, file: BinaryIO, path: Path, shown: str, asked: str = "") -> None:
        """shown: the path as it appears in messages. asked: what the user states of the file besides."""
        self.path = path
        self.shown = shown
        self.asked = asked
        self.line = 0
        self.provenance: list[str] = []
        self.further: list[str] = []
        self.left_out: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.header: list[str] = []
        self.sha256 = hashlib.sha256()
        self._file = file

    @property
    def notes(self) -> list[str]:
        """All messages, once the file is read."""
        counts = (("left out", self.left_out), ("taken as the plain operation", self.taken))
        said = [f"{n:,} {what}: {why}" for what, of in counts for why, n in sorted(of.items())]
        return [*said, *self.further]

    def rows(
        self, lines: Iterable[str], check: Callable[[list[str]], None] | None = None
    ) -> Iterator[dict[str, str]]:
        """Yields the rows of a table below its header row, whose names are the keys. Header rows of
        concatenated shards are left out. check: called with the names first. Raises ProblemSetError."""
        try:
            header: list[str] | None = None
            for cells in csv.reader(lines, strict=True):
                if header is None:
                    header = cells
                    self.header = [name.strip() for name in cells]
                    if check is not None:
                        check(self.header)
                elif len(cells) != len(header):
                    raise self.error(f"{len(cells)} cells, but the header row has {len(header)} columns")
                elif cells != header:
                    yield dict(zip(self.header, map(str.strip, cells), strict=True))
        except csv.Error as error:
            raise self.error(f"not CSV: {error}") from None

    def table(self) -> Iterator[tuple[dict[str, str], str]]:
        """Yields the rows of a table with their names in lower case, and as text. Raises ProblemSetError."""
        for cells in self.rows(line for line in self.lines() if line.strip()):
            yield {name.lower(): cell for name, cell in cells.items()}, ",".join(cells.values())

    def lines(self) -> Iterator[str]:
        """Yields every line without its line break. Raises ProblemSetError for a file that is not UTF-8
        text."""
        while raw := self._file.readline(MAX_LINE_BYTES):
            self.sha256.update(raw)
            self.line += 1
            if len(raw) >= MAX_LINE_BYTES:
                raise self.error(f"a line has more than {MAX_LINE_BYTES:,} bytes: this is not a problem set")
            if self.line == 1:
                raw = raw.removeprefix(_BOM)
                if what := no_text(raw):
                    raise self.error(f"this is {what}")
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise self.error("not UTF-8 text; save the file as text in UTF-8") from None
            if "\0" in text:
                raise self.error("a zero byte: this is a binary file, not text")
            yield text

    def text(self) -> str:
        """Returns the whole file, for formats that are no lines. Raises ProblemSetError for other than UTF-8
        text."""
        data = self._file.read()
        self.sha256.update(data)
        try:
            return data.removeprefix(_BOM).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("not UTF-8 text; save the file as text in UTF-8", 0) from None

    def error(self, message: str, line: int | None = None) -> ProblemSetError:
        """Returns an error with its position: the last line read, the given line, or the file alone (line
        0)."""
        number = self.line if line is None else line
        return ProblemSetError(f"{self.shown}:{number}: {message}" if number else f"{self.shown}: {message}")


def quoted(text: str) -> str:
    """Returns a cell or a name as shown in a message: quoted, on one line, shortened."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
