"""Failures of system calls that pass: nobody may conclude from them that a file, a limit or a lock is not
there."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.EINTR})
"""No descriptor or memory is free, a disk fails, somebody interrupts."""


@contextmanager
def unless_passing() -> Iterator[None]:
    """Ignores errors that last: the file does not exist, access is forbidden. Raises OSError for others."""
    try:
        yield
    except OSError as error:
        if error.errno in _PASSING:
            raise
