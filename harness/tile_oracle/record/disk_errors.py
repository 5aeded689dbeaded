"""Errors of the operating system as one-line messages for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tile_oracle.errors import RecordError


@contextmanager
def disk_errors_as(what: str, fix: str = "") -> Iterator[None]:
    """Turns an OSError into a RecordError: WHAT: the system's reason (the file); FIX."""
    try:
        yield
    except OSError as error:
        file = f" ({error.filename})" if error.filename else ""
        raise RecordError(f"{what}: {error.strerror or error}{file}{f'; {fix}' if fix else ''}") from None
