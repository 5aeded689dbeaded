"""The folder for temporary files of the campaigns."""

from __future__ import annotations

import os
from pathlib import Path


def memory_folder() -> str | None:
    """A folder in memory, where a flush is free; None (the default temporary folder) if there is none."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and os.access(folder, os.W_OK) else None
