"""The folder of a series of nights: baselines, history, runs, and which night is incomplete.

    kept/baselines/     the accepted efficiencies (--baseline-dir)
    kept/history.csv    the outcome of every night: a row per night and problem set
    nights/NIGHT/       the runs of a night (--report-dir), named by the UTC time of its start
    unfinished.json     the last night, if it is incomplete

`kept` is small and may be a clone of a branch. The rest stays on the machine, outside of any checkout.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.locks import held
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
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}; remove it to begin a new history") from None
    if tuple(rows[0]) != COLUMNS:
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


_NIGHT = re.compile(r"[0-9]{8}T[0-9]{6}Z(?:-[0-9]+)?")


@dataclass(frozen=True)
class Unfinished:
    """A night that the next one may continue. ended: its end is in the history; False if the night was killed
    before it could write it."""

    night: str
    ended: bool


@dataclass(frozen=True)
class NightState:
    """The folder of one series of nights, and the folder of their baselines and history."""

    folder: Path
    kept: Path

    @property
    def baselines(self) -> Path:
        return self.kept / "baselines"

    @property
    def history(self) -> Path:
        return self.kept / "history.csv"

    def runs_of(self, night: str) -> Path:
        """Returns the folder with the runs of a night."""
        return self.folder / "nights" / night

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder for this process. Raises RecordError if another process uses it."""
        with disk_errors_as(RecordError, f"cannot use {self.folder}", "choose another --state"):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = ExitStack()
            is_free = lock.enter_context(held(self.folder / "lock", wait=False))
        with lock:
            if not is_free:
                raise RecordError(
                    f"another night uses {self.folder}: wait until it ends, or choose another --state"
                )
            yield

    # ---- which night ------------------------------------------------------------------------

    def new_night(self) -> str:
        """Creates the folder of a new night and returns the night's name. Raises RecordError."""
        name = base = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        for count in range(2, 100):
            try:
                self.runs_of(name).mkdir(parents=True)
                return name
            except FileExistsError:
                name = f"{base}-{count}"
            except OSError as error:
                raise RecordError(f"cannot make {self.runs_of(name)}: {error.strerror}") from None
        raise RecordError(f"too many nights at once in {self.folder}")

    def unfinished(self) -> Unfinished | None:
        """Returns the incomplete night, if its runs still exist."""
        try:
            said = json.loads((self.folder / "unfinished.json").read_bytes())
            found = Unfinished(str(said["night"]), said["ended"] is True)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return found if _NIGHT.fullmatch(found.night) and self.runs_of(found.night).is_dir() else None

    def set_unfinished(self, found: Unfinished | None) -> None:
        """Stores the incomplete night; None: there is none. Raises RecordError."""
        path = self.folder / "unfinished.json"
        with disk_errors_as(RecordError, f"cannot write {path}"):
            if found is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, json.dumps(vars(found), sort_keys=True).encode() + b"\n")

    def forget_old(self, keep: int, current: str) -> list[str]:
        """Removes the runs of all but the `keep` newest nights and returns their names. The history is
        kept."""
        there = sorted(
            path.name for path in (self.folder / "nights").iterdir() if _NIGHT.fullmatch(path.name)
        )
        old = [name for name in there[: -keep or None] if name != current]
        for name in old:
            with suppress(OSError):
                shutil.rmtree(self.runs_of(name))
        return old
