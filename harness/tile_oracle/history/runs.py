"""Finds the runs below a folder: reports/, the state folder of nights, or downloaded artefacts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.errors import HarnessError, RecordError
from tile_oracle.history.summary import VERDICT, RunSummary, summarize
from tile_oracle.night.nights import Entry, read_history
from tile_oracle.terminal.progress_line import steps

_DEEPEST = 7
_NIGHTS = "history.csv"


@dataclass(frozen=True)
class Runs:
    """All runs of a folder, oldest first, and why others are missing."""

    root: Path
    runs: Sequence[RunSummary]
    notes: Sequence[str] = ()


def read_runs(root: Path) -> Runs:
    """Returns the runs below `root` and, from histories of nights, nights whose runs are gone. Raises
    RecordError if there is no run."""
    root = root.resolve()
    if not root.is_dir():
        raise RecordError(f"{root} is not a folder: give the folder that holds the runs, such as reports")
    folders, histories = _walk(root)
    found, unreadable = [], []
    for folder in steps("reading the runs", folders):
        try:
            found.append(summarize(folder, folder.relative_to(root).as_posix()))
        except HarnessError as error:
            unreadable.append(str(error))
    notes = [f"not shown: {line}" for line in unreadable]
    for path in histories:
        found += list(_nights_without_runs(read_history(path), found))
    if not found:
        why = f"; {unreadable[0]}" if unreadable else f": it holds no {VERDICT}"
        raise RecordError(f"there is no run with a report in {root}{why}")
    return Runs(root, sorted(found, key=lambda run: (run.when, run.folder, run.name)), notes)


def _walk(root: Path) -> tuple[list[Path], list[Path]]:
    """Returns the folders with a verdict, and the histories of nights; links are not followed."""
    folders, histories = [], []
    for here, below, files in os.walk(root):
        place = Path(here)
        below[:] = sorted(name for name in below if name != "measurements" and not name.startswith("."))
        if len(place.relative_to(root).parts) >= _DEEPEST:
            below.clear()
        if VERDICT in files:
            folders.append(place)
        if _NIGHTS in files:
            histories.append(place / _NIGHTS)
    return folders, histories


def _nights_without_runs(entries: Sequence[Entry], runs: Sequence[RunSummary]) -> Iterator[RunSummary]:
    """Nights that left no run, and those whose runs were removed: failed, stopped and device-less ones, too.
    A night's name is the UTC time of its start."""
    there = {(part, run.problem_set) for run in runs for part in run.folder.split("/")}
    newest = {(entry.night, entry.problem_set): entry for entry in entries}
    for entry in newest.values():
        if (entry.night, entry.problem_set) in there:
            continue
        problems, covered = _float(entry.problems), _float(entry.covered)
        yield RunSummary(
            folder="",
            name=f"night {entry.night}",
            when=entry.ended.replace("Z", "+00:00"),
            state=entry.outcome,
            problem_set=entry.problem_set,
            complete=bool(entry.mean_percent)
            and not entry.outcome.startswith(("incomplete", "interrupted", "killed")),
            device=entry.device,
            mean=_float(entry.mean_percent),
            median=_float(entry.median_percent),
            p10=_float(entry.p10_percent),
            coverage=100.0 * covered / problems if problems and covered is not None else None,
        )


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
