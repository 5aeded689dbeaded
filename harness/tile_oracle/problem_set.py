"""Problem sets: files of problems. Shipped sets are given by name, a user's own files by path.

A user's file is a CSV table or the same in JSON (`problem_list.problem_table`), the records of a run
(`problem_list.recorded`), or another program's file (`foreign.formats`). Its name or first lines decide
which. Shipped sets are CSV.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from tile_oracle.errors import ProblemSetError, first_line
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.spreadsheet import safe_cell
from tile_oracle.files.user_file import open_regular
from tile_oracle.foreign.list_file import MAX_LINE_BYTES, ListFile, quoted
from tile_oracle.operation import operation_named, operation_of_columns
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.problem_list.problem_table import SOURCE_COLUMN, ProblemTable
from tile_oracle.terminal.did_you_mean import did_you_mean

MAX_ROWS = 1_000_000
MAX_FILE_BYTES = 256 * 2**20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_LIST_OF_FILE = re.compile(r"(?P<path>.+\.(?:csv|txt|log|json)):(?P<list>[A-Za-z_][A-Za-z0-9_]*)")
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*(?::[A-Za-z0-9_]*)?$")


@dataclass(frozen=True)
class ProblemSet:
    """Distinct problems in the order of their file.

    path: the file; None for a merged set. provenance: the comment lines above the header row. sha256: of the
    file's bytes; for a merged set, of the parts' hashes. sources: one text per problem, "" if the file gives
    none. repeated_rows: number of rows that repeat an earlier problem and were left out. parts: the single
    sets of a merged set. notes: other parts of the file that were ignored, one text each.
    """

    name: str
    problems: tuple[Problem, ...]
    path: Path | None
    provenance: str
    sha256: str
    sources: tuple[str, ...]
    repeated_rows: int = 0
    parts: tuple[ProblemSet, ...] = ()
    notes: tuple[str, ...] = ()


def list_problem_sets() -> tuple[str, ...]:
    """Returns the names of the shipped sets, sorted."""
    return tuple(sorted(_shipped()))


def load_problem_set(name_or_path: str | os.PathLike[str]) -> ProblemSet:
    """Loads a shipped set by name, or a user's own file by path (`is_path`). `FILE.csv:ARCH` are the
    rows of an architecture in a table of AITER.

    Repeated problems are an error in a shipped set; in a user's own file they are counted and left out.
    Raises ProblemSetError, one line with file, line number, error and fix.
    """
    text = os.fspath(name_or_path)
    shipped = _shipped()
    if isinstance(name_or_path, str) and not is_path(text):
        if text not in shipped:
            raise ProblemSetError(_unknown_name(text, shipped))
        return _load(shipped[text], text, repeats_allowed=False)
    of_file = _LIST_OF_FILE.fullmatch(text)
    try:
        path = Path(of_file["path"] if of_file else text).expanduser()
    except RuntimeError as error:
        raise ProblemSetError(f"{quoted(text)}: {error}; write the whole path") from None
    if of_file:
        name = f"{_name_of(path)}_{of_file['list']}"
        return _load(path, name, repeats_allowed=True, list_name=of_file["list"])
    return _load(path, _name_of(path), repeats_allowed=path not in shipped.values())


def is_path(text: str) -> bool:
    """Returns whether a text names a file, not a shipped set: it has a `/` or a file's suffix (`.csv`)."""
    return os.sep in text or _SUFFIX.search(text) is not None


def load_problem_sets(names_or_paths: str) -> ProblemSet:
    """Loads one or several sets, separated by commas, as one. A problem of several sets is kept once, in its
    first place. Raises ProblemSetError."""
    texts = [text.strip() for text in names_or_paths.split(",")]
    if not all(texts):
        raise ProblemSetError(
            f"{quoted(names_or_paths)} has an empty name; separate sets by single commas: "
            "forward_smoke,my_shapes.csv"
        )
    sets = tuple(load_problem_set(text) for text in dict.fromkeys(texts))
    return sets[0] if len(sets) == 1 else merge_problem_sets(sets)


def problem_set_of_ids(ids: Iterable[str], path: Path) -> ProblemSet:
    """Returns the set of the problems with these ids, as read from the records at `path`. Raises ProblemError
    for an invalid id."""
    problems = tuple(dict.fromkeys(problem_from_id(text) for text in ids))
    digest = hashlib.sha256("\n".join(problem.id for problem in problems).encode()).hexdigest()
    return ProblemSet(_name_of(path), problems, path, "", digest, ("",) * len(problems))


def reading_notes(problem_set: ProblemSet) -> tuple[str, ...]:
    """Messages about the parts of a user's files that were ignored or are repeated."""
    parts = problem_set.parts or (problem_set,)
    repeats = [
        f"{part.name}: {part.repeated_rows:,} rows or lines repeat an earlier problem and count once"
        for part in parts
        if part.repeated_rows
    ]
    return (*(f"{part.name}: {note}" for part in parts for note in part.notes), *repeats)


def merge_problem_sets(sets: Iterable[ProblemSet]) -> ProblemSet:
    """Merges several sets into one, in their order, with each problem once."""
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
    """Parses a problem such as `N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1`. Defaults are those of a
    CSV file's columns; M=, N= and K= make a GEMM. Raises ProblemSetError."""
    names, cells = [], []
    for part in text.split(","):
        name, equals, cell = part.partition("=")
        if not equals or not name.strip() or '"' in part:
            raise ProblemSetError(f"{quoted(part)} is not a dimension; write C=64, joined by commas")
        names.append(name.strip())
        cells.append(cell.strip())
    rows = BytesIO(f"{','.join(names)}\n{','.join(cells)}\n".encode())
    file = ListFile(rows, Path(), quoted(text))
    return next(ProblemTable(file, further_columns=False).problems())[0]


def format_problem_set(problems: Iterable[Problem], sources: Iterable[str], provenance: str) -> str:
    """Returns the text of a problem set's file: comment lines, header row, all fields of all problems, and
    the sources. `load_problem_set` reads it. Raises ProblemSetError for problems of several operations."""
    problems = tuple(problems)
    ops = {problem.op for problem in problems} or {operation_of_columns(()).name}
    if len(ops) > 1:
        raise ProblemSetError("the problems are of several operations: write a file for each")
    lines = [f"# {line}".rstrip() for line in provenance.splitlines()]
    lines.append(",".join((*operation_named(ops.pop()).problem_fields, SOURCE_COLUMN)))
    for problem, source in zip(problems, sources, strict=True):
        cells = (*map(str, problem.as_row().values()), _csv_cell(source))
        lines.append(",".join(cells))
    text = "\n".join(lines) + "\n"
    return text.encode("utf-8", "backslashreplace").decode()  # the name of a source need not be valid UTF-8


# ---- finding ------------------------------------------------------------------------------------


def _shipped() -> dict[str, Path]:
    files = data_folder("problems").glob("*.csv")
    return {file.stem: file for file in files if _NAME.fullmatch(file.stem)}


def _unknown_name(name: str, shipped: Iterable[str]) -> str:
    known = sorted(shipped)
    if len(name.split()) > 1:
        return f"no problem set is called {quoted(name)}: several sets are written {','.join(name.split())}"
    hint = did_you_mean(name, known, f"`tile-oracle problems` lists the {len(known)} that ship.", cutoff=0.5)
    return f"no problem set is called {quoted(name)}: {hint} Give your own file by its path, e.g. ./my.csv"


def _name_of(path: Path) -> str:
    try:
        return path.name if path.is_dir() else path.stem
    except OSError:  # an invalid path; reading it reports the error
        return path.stem


# ---- reading ------------------------------------------------------------------------------------


def _load(path: Path, name: str, *, repeats_allowed: bool, list_name: str | None = None) -> ProblemSet:
    shown = _shown(path)
    try:
        if (path / "measurements").is_dir():
            return _of_records(path, name)
        if path.is_dir():
            raise ProblemSetError(f"{shown} is a folder; give the path of a CSV file in it")
        if not path.is_file():
            missing = "is not a regular file" if path.exists() else "does not exist"
            raise ProblemSetError(f"{shown} {missing}; shipped sets are listed by: tile-oracle problems")
        file_bytes = path.stat().st_size
        if file_bytes > MAX_FILE_BYTES:
            raise ProblemSetError(
                f"{shown} has {file_bytes / 2**20:.0f} MiB, but a problem set may have at most "
                f"{MAX_FILE_BYTES // 2**20}: split the file"
            )
        if path.suffix.lower() == ".parquet":
            return _of_records(path, name)
        with open_regular(path) as file:
            listed = ListFile(file, path, shown)
            shipped = ProblemTable(listed, further_columns=True)
            rows = _rows(listed, file, list_name) if repeats_allowed else shipped.problems()
            return _collected(listed, name, rows, repeats_allowed=repeats_allowed)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise ProblemSetError(f"{shown} cannot be read: {reason}") from None


def _of_records(path: Path, name: str) -> ProblemSet:
    """Loads the problems of a file of records, or of a run's folder."""
    # Loads pyarrow, which CSV files do not need.
    from tile_oracle.problem_list.recorded import recorded_problems

    listed = ListFile(BytesIO(), path, _shown(path))
    return _collected(listed, name, recorded_problems(listed), repeats_allowed=True)


def _rows(listed: ListFile, file: BinaryIO, list_name: str | None) -> Iterator[tuple[Problem, str]]:
    """Reads the rows of a user's file with the reader that its name or first lines call for."""
    # Imported here: a shipped set is a CSV table, and a session on one starts without all these formats.
    from tile_oracle.foreign.entry import problems_of
    from tile_oracle.foreign.formats import PROBLEMS, Head, recognised

    head = file.read(MAX_LINE_BYTES).decode("utf-8", errors="replace")
    file.seek(0)
    known = recognised(listed.path, head)
    if known is not None and PROBLEMS not in known.taken_by:
        raise listed.error(known.said, 0)
    entries = None if known is None else known.entries_in(listed)
    if known is not None and entries is not None:
        arch, listed.asked = ("", list_name or "") if known.asks_layout else (list_name or "", "")
        return problems_of(listed, entries, known.fields, arch or None)
    if list_name is not None:
        raise listed.error("FILE.csv:ARCH is for tables that state architectures, as AITER's do", 0)
    return ProblemTable(listed, further_columns=True, as_json=Head(listed.path, head).is_json).problems()


def _collected(
    file: ListFile, name: str, rows: Iterable[tuple[Problem, str]], *, repeats_allowed: bool
) -> ProblemSet:
    first_seen: dict[Problem, int] = {}
    sources: list[str] = []
    repeated = 0
    for count, (problem, source) in enumerate(rows, 1):
        if count > MAX_ROWS:
            raise file.error(f"more than {MAX_ROWS:,} rows: split the file")
        if problem not in first_seen:
            first_seen[problem] = file.line
            sources.append(source)
        elif repeats_allowed:
            repeated += 1
        else:
            raise file.error(f"{problem.id} is on line {first_seen[problem]} already; remove one of the two")
    if not first_seen:
        raise file.error("; ".join(["no problem in it", *file.notes]), 0)
    return ProblemSet(
        name=name,
        problems=tuple(first_seen),
        path=file.path,
        provenance="\n".join(file.provenance),
        sha256=file.sha256.hexdigest(),
        sources=tuple(sources),
        repeated_rows=repeated,
        notes=tuple(file.notes),
    )


# ---- texts --------------------------------------------------------------------------------------


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() and len(text) < 4096 else quoted(text)


def _csv_cell(text: str) -> str:
    one_line = safe_cell(" ".join(text.split()))
    return '"' + one_line.replace('"', '""') + '"' if set(',"') & set(one_line) else one_line
