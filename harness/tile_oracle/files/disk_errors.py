"""Errors of the operating system as one-line messages for users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disk_errors_as(error: type[Exception], what: str, fix: str = "") -> Iterator[None]:
    """Turns an OSError into `error`: WHAT: the system's reason (the file, if WHAT names neither it nor its
    folder); FIX."""
    try:
        yield
    except OSError as reason:
        name = str(reason.filename or "")
        named = name in what or os.path.dirname(name) in what
        file = "" if named else f" ({name})"
        raise error(f"{what}: {reason.strerror or reason}{file}{fix and '; '}{fix}") from None
