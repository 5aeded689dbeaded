"""Arrow's memory: how much it takes, and what it keeps after its tables are gone."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_M_ARENA_MAX = -8
"""Of glibc's mallopt."""


def keep_arrow_small() -> None:
    """Makes Arrow allocate by malloc, on one thread, unless it is imported already or the user's environment
    names a pool.

    Its default, mimalloc, keeps some 50 MB more after 140,000 records were read: columns are made and
    dropped one by one, and pages that still hold a part of one are not returned. Threads each have parts of
    their own, and a session's files are read in tenths of a second anyway. In glibc, what a thread of Arrow
    frees would not be used again by this one (60 MB more).
    """
    if "pyarrow" in sys.modules or _POOL in os.environ:
        return
    os.environ[_POOL] = "system"
    try:
        import pyarrow as pa
    finally:
        del os.environ[_POOL]
    pa.set_cpu_count(1)
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Returns unused memory of Arrow's pool to the system. Arrow's arrays hold pandas' texts, and its pool
    would keep what a sort or a join needed for a moment."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
