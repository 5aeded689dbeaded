"""Problem sets: CSV files of problems, shipped ones by name and a user's own by path.

A file begins with comment lines (`# `) that say where the set comes from; then a header row of problem
fields; then one problem a row. A file is of one operation, which its columns say (M, N, K: a GEMM; else a
convolution); a column `op` may say it too. Columns of fields with a default may be left out, and so may
direction (forward), dtype (bf16), layout (rcr), G (1) and ndim (3 where a row's depth columns say more than
the defaults, else 2). A column `source` may say where each problem comes from. Blank and comment lines are
skipped.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from tile_oracle.data_files import data_folder
from tile_oracle.errors import ProblemError, ProblemSetError
from tile_oracle.operation import operation_named, operation_of_columns
from tile_oracle.problem import Problem
from tile_oracle.spreadsheet import cell_text, safe_cell
from tile_oracle.user_file import open_regular

MAX_ROWS = 1_000_000
MAX_FILE_BYTES = 256 * 2**20
MAX_LINE_BYTES = 64 * 2**10

SOURCE_COLUMN = "source"
OP_COLUMN = "op"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_NEGATIVE = re.compile(r"-[0-9]{1,19}", re.ASCII)
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ProblemSet:
    """Distinct problems in the order of their file.

    path: the file; None for several sets together. provenance: the comment lines above the header
    row. sha256: of the file's bytes (of the parts' hashes for several sets together). sources: one
    text a problem, "" where the file does not say. repeated_rows: rows that said an earlier problem
    again and were left out. parts: the single sets of several sets together.
    """

    name: str
    problems: tuple[Problem, ...]
    path: Path | None
    provenance: str
    sha256: str
    sources: tuple[str, ...]
    repeated_rows: int = 0
    parts: tuple[ProblemSet, ...] = ()


def list_problem_sets() -> tuple[str, ...]:
    """The names of the shipped sets, sorted."""
    return tuple(sorted(_shipped()))


def load_problem_set(name_or_path: str | os.PathLike[str]) -> ProblemSet:
    """A shipped set by its name, or a user's own file by its path (it has a `/` or ends in `.csv`).

    Rows that repeat a problem are an error in a shipped set; in a user's own file they are counted and
    left out. Raises ProblemSetError, one line with file, line number, what is wrong and what would be
    right.
    """
    text = os.fspath(name_or_path)
    is_path = not isinstance(name_or_path, str) or os.sep in text or text.lower().endswith(".csv")
    shipped = _shipped()
    if not is_path:
        if text not in shipped:
            raise ProblemSetError(_unknown_name(text, shipped))
        return _load(shipped[text], text, repeats_allowed=False)
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise ProblemSetError(f"{_quoted(text)}: {error}; write the whole path") from None
    return _load(path, path.stem, repeats_allowed=path not in shipped.values())


def load_problem_sets(names_or_paths: str) -> ProblemSet:
    """One or several sets, separated by commas, as one: a problem that is in two of them appears once,
    where it comes first. Raises ProblemSetError."""
    texts = [text.strip() for text in names_or_paths.split(",")]
    if not all(texts):
        raise ProblemSetError(
            f"{_quoted(names_or_paths)} has an empty name; separate sets by single commas: "
            "forward_smoke,my_shapes.csv"
        )
    sets = tuple(load_problem_set(text) for text in dict.fromkeys(texts))
    return sets[0] if len(sets) == 1 else merge_problem_sets(sets)


def merge_problem_sets(sets: Iterable[ProblemSet]) -> ProblemSet:
    """Several sets as one, in their order, each problem once."""
    parts = tuple(sets)
    merged: dict[Problem, str] = {}
    for part in parts:
        for problem, source in zip(part.problems, part.sources, strict=True):
            merged.setdefault(problem, source)
    return ProblemSet(
        name=",".join(part.name for part in parts),
        problems=tuple(merged),
        path=None,
        provenance="\n".join(f"{part.name}: {part.provenance}" for part in parts),
        sha256=hashlib.sha256("\n".join(part.sha256 for part in parts).encode()).hexdigest(),
        sources=tuple(merged.values()),
        repeated_rows=sum(len(part.problems) + part.repeated_rows for part in parts) - len(merged),
        parts=parts,
    )


def problem_from_dimensions(text: str) -> Problem:
    """One problem by its dimensions, `N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1`, with the defaults
    of a file's columns; M=, N=, K= are a GEMM's. Raises ProblemSetError."""
    names, cells = [], []
    for part in text.split(","):
        name, equals, cell = part.partition("=")
        if not equals or not name.strip() or '"' in part:
            raise ProblemSetError(f"{_quoted(part)} is not a dimension; write C=64, joined by commas")
        names.append(name.strip())
        cells.append(cell.strip())
    rows = BytesIO(f"{','.join(names)}\n{','.join(cells)}\n".encode())
    return _Reader(rows, _quoted(text), repeats_allowed=True).read(Path(), "").problems[0]


def format_problem_set(problems: Iterable[Problem], sources: Iterable[str], provenance: str) -> str:
    """The text of a problem set's file: comment lines, header row, every field of every problem, and
    the sources. `load_problem_set` reads it back. The problems are of one operation (ProblemSetError)."""
    problems = tuple(problems)
    ops = {problem.op for problem in problems} or {operation_of_columns(()).name}
    if len(ops) > 1:
        raise ProblemSetError("a problem set's file holds problems of one operation")
    lines = [f"# {line}".rstrip() for line in provenance.splitlines()]
    lines.append(",".join((*operation_named(ops.pop()).problem_fields, SOURCE_COLUMN)))
    for problem, source in zip(problems, sources, strict=True):
        cells = (*map(str, problem.as_row().values()), _csv_cell(source))
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


# ---- finding ------------------------------------------------------------------------------------


def _shipped() -> dict[str, Path]:
    files = data_folder("problems").glob("*.csv")
    return {file.stem: file for file in files if _NAME.fullmatch(file.stem)}


def _unknown_name(name: str, shipped: Iterable[str]) -> str:
    known = sorted(shipped)
    close = difflib.get_close_matches(name[:200], known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known) or 'none'}."
    return f"no problem set is called {_quoted(name)}: {hint} Your own file is given by its path, ./my.csv"


# ---- reading ------------------------------------------------------------------------------------


def _load(path: Path, name: str, *, repeats_allowed: bool) -> ProblemSet:
    shown = _shown(path)
    try:
        if path.is_dir():
            raise ProblemSetError(f"{shown} is a folder; give the path of a CSV file in it")
        if not path.is_file():
            missing = "is not a regular file" if path.exists() else "does not exist"
            raise ProblemSetError(f"{shown} {missing}; shipped sets are listed by: tile-oracle problems")
        file_bytes = path.stat().st_size
        if file_bytes > MAX_FILE_BYTES:
            raise ProblemSetError(
                f"{shown} has {file_bytes / 2**20:.0f} MiB, a problem set at most "
                f"{MAX_FILE_BYTES // 2**20}: split the file"
            )
        with open_regular(path) as file:
            return _Reader(file, shown, repeats_allowed).read(path, name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ProblemSetError(f"{shown} cannot be read: {reason}") from None


class _Reader:
    """Reads one file, line by line, so that no file, however large or strange, fills the memory."""

    def __init__(self, file: BinaryIO, shown: str, repeats_allowed: bool) -> None:
        self._file = file
        self._shown = shown
        self._repeats_allowed = repeats_allowed
        self._sha256 = hashlib.sha256()
        self._line = 0
        self._header_seen = False
        self._provenance: list[str] = []
        self._operation = operation_of_columns(())

    def read(self, path: Path, name: str) -> ProblemSet:
        first_line: dict[Problem, int] = {}
        sources: list[str] = []
        repeated = 0
        rows = csv.reader(self._lines(), strict=True)
        try:
            header = next(rows, None)
            if header is None:
                raise self._error(
                    "no header row; it would be: " + ",".join(self._operation.required), line=False
                )
            self._header_seen = True
            columns = self._columns(header)
            for count, cells in enumerate(rows, 1):
                if count > MAX_ROWS:
                    raise self._error(f"more than {MAX_ROWS:,} rows: split the file")
                problem, source = self._problem(columns, cells)
                earlier = first_line.setdefault(problem, self._line)
                if earlier == self._line:
                    sources.append(source)
                elif self._repeats_allowed:
                    repeated += 1
                else:
                    raise self._error(f"{problem.id} is on line {earlier} already; remove one of the two")
        except csv.Error as error:
            raise self._error(f"not CSV: {error}") from None
        if not first_line:
            raise self._error("a header but no problems below it", line=False)
        return ProblemSet(
            name=name,
            problems=tuple(first_line),
            path=path,
            provenance="\n".join(self._provenance),
            sha256=self._sha256.hexdigest(),
            sources=tuple(sources),
            repeated_rows=repeated,
        )

    def _lines(self) -> Iterator[str]:
        """The lines that hold cells; comment lines above the header row are kept as provenance."""
        while raw := self._file.readline(MAX_LINE_BYTES):
            self._sha256.update(raw)
            self._line += 1
            if len(raw) >= MAX_LINE_BYTES:
                raise self._error(f"a line of more than {MAX_LINE_BYTES:,} bytes: this is no problem set")
            if self._line == 1:
                raw = raw.removeprefix(_BOM)
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise self._error("not UTF-8 text; save the file as CSV in UTF-8") from None
            if "\0" in text:
                raise self._error("a zero byte: this is a binary file, not CSV")
            if text.startswith("#"):
                if not self._header_seen:
                    self._provenance.append(text.lstrip("#").strip())
            elif text.strip():
                yield text

    def _columns(self, header: list[str]) -> list[str]:
        names = [name.strip() for name in header]
        self._operation = operation_of_columns(names)
        known = (*self._operation.problem_fields, SOURCE_COLUMN, OP_COLUMN)
        for position, name in enumerate(names):
            if name not in known:
                hint = _closest(name, known)
                raise self._error(f"column {position + 1}, {_quoted(name)}, is unknown; {hint}")
            if name in names[:position]:
                raise self._error(f"column {name} is there twice; remove one")
        required = self._operation.required
        missing = [name for name in required if name not in names]
        if missing:
            raise self._error(
                f"no column {', '.join(missing)}; a header row needs at least {','.join(required)}"
            )
        return names

    def _problem(self, columns: list[str], cells: list[str]) -> tuple[Problem, str]:
        if len(cells) != len(columns):
            raise self._error(f"{len(cells)} cells where the header row has {len(columns)} columns")
        words = {**self._operation.defaults, SOURCE_COLUMN: "", OP_COLUMN: self._operation.name}
        numbers: dict[str, int] = {}
        for name, cell in zip(columns, cells, strict=True):
            cell = cell.strip()
            if name in words:
                words[name] = cell
            elif (cell.isdigit() and cell.isascii() and len(cell) < 20) or _NEGATIVE.fullmatch(cell):
                numbers[name] = int(cell)
            else:
                raise self._error(f"{name} = {_quoted(cell)} is not an integer; {_integer_hint(cell)}")
        if words[OP_COLUMN] != self._operation.name:
            raise self._error(
                f"op = {_quoted(words[OP_COLUMN])} in a file with the columns of {self._operation.name}; "
                f"write {self._operation.name}, or give problems of each operation a file of their own"
            )
        try:
            given = {name: words[name] for name in self._operation.defaults} | numbers
            problem = self._operation.problem(**self._operation.completed(given))
            return problem, cell_text(words[SOURCE_COLUMN])
        except ProblemError as error:
            raise self._error(str(error)[:300]) from None

    def _error(self, message: str, *, line: bool = True) -> ProblemSetError:
        return ProblemSetError(
            f"{self._shown}:{self._line}: {message}" if line else f"{self._shown}: {message}"
        )


# ---- texts --------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    """A cell or a name for a message: one line, not too long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() and len(text) < 4096 else _quoted(text)


def _closest(name: str, known: tuple[str, ...]) -> str:
    by_lower = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name[:60].lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else f"known are {', '.join(known)}"


def _integer_hint(cell: str) -> str:
    if not cell:
        return "fill the cell, or leave out the whole column for its default"
    try:
        value = float(cell)
    except ValueError:
        return "write digits only"
    whole = value == value and abs(value) < 2**53 and value == int(value)
    return f"write {int(value)}" if whole else "write digits only"


def _csv_cell(text: str) -> str:
    one_line = safe_cell(" ".join(text.split()))
    return '"' + one_line.replace('"', '""') + '"' if set(',"') & set(one_line) else one_line
