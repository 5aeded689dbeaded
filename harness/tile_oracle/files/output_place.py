"""Whether a result can be written, asked before the work that makes it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tile_oracle.errors import HarnessError
from tile_oracle.files.disk_errors import disk_errors_as


def refuse_unwritable(places: Iterable[str | Path]) -> None:
    """Raises HarnessError for the first of these paths that no file or folder can be written to. Folders
    above it are made; standard output (-) and devices are left alone."""
    for place in places:
        special = Path(place).exists() and not (Path(place).is_file() or Path(place).is_dir())
        if special or str(place) in ("", "-"):
            continue
        with disk_errors_as(HarnessError, f"cannot write {place}"):
            above = Path(place).absolute().parent
            above.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=above):
                pass
