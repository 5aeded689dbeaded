"""Whether a result can be written, asked before the work that makes it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tile_oracle.errors import HarnessError
from tile_oracle.files.disk_errors import disk_errors_as


def refuse_unwritable(error: type[HarnessError], *places: str | Path | None) -> None:
    """Raises `error` for the first of these paths that no file or folder can be written to. Folders above it
    are made; standard output (-) and None are no paths."""
    for place in places:
        if place is None or str(place) in ("", "-"):
            continue
        with disk_errors_as(error, f"cannot write {place}"):
            above = Path(place).absolute().parent
            above.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=above):
                pass
