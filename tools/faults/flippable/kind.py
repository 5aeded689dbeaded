"""A kind of file, as the bit-flip campaign uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    name: its name in tables. make: writes an example with everything needed to use it into an empty folder,
    and returns the files whose bits are flipped. read: returns the user-visible result of a folder (rows, an
    oracle, a verdict, a prediction) as a value comparable with `==`; it may write into the folder, a copy.
    apart: whether to read in a separate process, because the reader may abort or hang.
    """

    name: str
    make: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]
    apart: bool = False
