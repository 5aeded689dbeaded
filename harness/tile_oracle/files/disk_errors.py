"""Errors of the operating system as one-line messages for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def disk_errors_as(error: type[Exception], what: str, fix: str = "") -> Iterator[None]:
    """Turns an OSError into `error`: WHAT: the system's reason (the file, if WHAT names neither it nor its
    folder); FIX."""
    try:
        yield
    except OSError as reason:
        place = Path(reason.filename or "")
        named = reason.filename is None or str(place) in what
        file = "" if named or (place.is_absolute() and str(place.parent) in what) else f" ({place})"
        raise error(f"{what}: {reason.strerror or reason}{file}{fix and '; '}{fix}") from None
