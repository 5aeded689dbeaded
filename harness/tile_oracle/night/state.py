"""The folder of a series of nights: baselines, history, runs, and which night is incomplete.

    kept/baselines/     the accepted efficiencies (--baseline-dir)
    kept/history.csv    the outcome of every night
    nights/NIGHT/       the runs of a night (--report-dir), named by the UTC time of its start
    unfinished.json     the last night, if it is incomplete

`kept` is small and may be a clone of a branch. The rest stays on the machine, outside of any checkout.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.locks import held

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
