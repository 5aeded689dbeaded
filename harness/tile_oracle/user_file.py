"""Reading a file that a user named: a regular file of a bounded size, or an error.

A FIFO that nobody writes to would hang the reader forever, a device may never end or may act when it is
opened, and a file that is far too large would take the machine's memory. `open_regular` refuses them before a
byte is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular(path: Path | str) -> BufferedReader:
    """The file, open for reading in binary. Symbolic links are followed.

    Raises OSError, whose strerror says what the path is, for anything but a regular file.
    """
    # Without O_NONBLOCK, to open a FIFO waits for a writer. It changes nothing for regular files.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        check_regular(handle, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_regular(handle: int, path: Path | str) -> None:
    """Raises OSError unless the descriptor is of a regular file."""
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        what = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
        raise OSError(errno.EINVAL, f"it is {what}, not a regular file", str(path))


def refuse_special(path: Path | str) -> None:
    """Raises OSError unless the path is a regular file now: for readers that open files themselves."""
    with open_regular(path):
        pass


def read_bytes(path: Path | str, limit: int) -> bytes:
    """The whole file. Raises OSError, with a strerror to show, for one of more than `limit` bytes and for
    what is no regular file."""
    with open_regular(path) as file:
        # One byte more than allowed: a file may grow between a look at its size and the read.
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {_size(limit)}", str(path))
    return data


def _size(limit: int) -> str:
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if limit >= 1 << bits:
            return f"{limit >> bits} {unit}"
    return f"{limit} bytes"
