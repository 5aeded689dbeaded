"""The history of nights: a CSV file with one row per night and problem set."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.spreadsheet import safe_cell
from tile_oracle.files.table_file import csv_text
from tile_oracle.terminal.text_table import text_table


@dataclass(frozen=True)
class Entry:
    """One night on one problem set.

    night: its name, the UTC time of its start. ended: when it ended, or was found to have been killed.
    status: the exit status, "" for a killed night. outcome: in words. problem_set, problems, covered, the
    three efficiencies (percent) and device: of the verdict, "" without one. run: the run's folder.
    """

    night: str
    ended: str
    status: str
    outcome: str
    problem_set: str = ""
    problems: str = ""
    covered: str = ""
    mean_percent: str = ""
    median_percent: str = ""
    p10_percent: str = ""
    device: str = ""
    run: str = ""


COLUMNS = tuple(field.name for field in fields(Entry))


def read_history(path: Path) -> list[Entry]:
    """Returns the rows of a history, oldest first; empty if there is no file. Raises RecordError."""
    try:
        rows = list(csv.reader(io.StringIO(csv_text(path), newline=""), strict=True))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, csv.Error) as error:
        raise RecordError(f"{path} cannot be read: {error}; remove it to begin a new history") from None
    if not rows or tuple(rows[0]) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        raise RecordError(f"{path} is not a history of nights; remove it to begin a new one")
    return [Entry(*row) for row in rows[1:]]


def add_to_history(path: Path, entries: Sequence[Entry]) -> None:
    """Appends rows to the file. Raises RecordError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in (*read_history(path), *entries):
        writer.writerow([safe_cell(str(cell)) for cell in asdict(entry).values()])
    with disk_errors_as(RecordError, f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.getvalue().encode())


def history_lines(entries: Sequence[Entry]) -> list[str]:
    """Returns a table of the rows, newest first."""
    head = ("night", "outcome", "set", "covered", "mean", "median", "P10")
    rows = [
        (
            one.night,
            one.outcome,
            one.problem_set,
            f"{one.covered}/{one.problems}" if one.problems else "",
            one.mean_percent,
            one.median_percent,
            one.p10_percent,
        )
        for one in reversed(entries)
    ]
    return text_table([head, *rows], right_aligned=(3, 4, 5, 6))
