"""What the campaign of flipped bits needs to know of a kind of file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    name: what tables call it. make: writes an example into an empty folder, with all that is needed to use
    it, and returns the files whose bits are flipped. read: what a user gets from that folder (rows, an
    oracle, a verdict, a prediction) as a value that `==` compares. It may write into the folder, a copy.
    apart: read in a process of its own, since the file's reader may abort or hang.
    """

    name: str
    make: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]
    apart: bool = False
