"""Errors of the operating system as one-line messages for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disk_errors_as(error: type[Exception], what: str, fix: str = "") -> Iterator[None]:
    """Turns an OSError into `error`: WHAT: the system's reason (the file, if WHAT does not name it); FIX."""
    try:
        yield
    except OSError as reason:
        name = str(reason.filename or "")
        file = f" ({name})" if name and name not in what else ""
        raise error(f"{what}: {reason.strerror or reason}{file}{fix and '; '}{fix}") from None
