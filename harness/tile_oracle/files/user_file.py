"""Safe reading of files named by a user: only regular files of bounded size.

A FIFO without a writer would block the reader forever, a device may be endless or have side effects when it
is opened, and a huge file would exhaust memory. `open_regular` refuses them before reading anything.
"""

from __future__ import annotations

import errno
import os
import re
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

_NO_TEXT = {
    rb"\x1f\x8b": "compressed by gzip: unpack it",
    rb"PK\x03\x04": "a spreadsheet or an archive: save its table as CSV",
    rb"PAR1": "a parquet file: name it .parquet",
    rb"\xff\xfe|\xfe\xff|.?\x00": "UTF-16: save it as text in UTF-8",
}
"""How files begin that are taken for text, as patterns."""


def no_text(data: bytes) -> str:
    """Returns what a file with this beginning is and what to do with it; "" if it may be text in UTF-8."""
    return next((what for begin, what in _NO_TEXT.items() if re.match(begin, data)), "")


def open_regular(path: Path | str) -> BufferedReader:
    """Opens a file for reading in binary. Symbolic links are followed.

    Raises OSError, whose strerror names the kind of file, for anything but a regular file.
    """
    # Without O_NONBLOCK, opening a FIFO waits for a writer. It has no effect on regular files.
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


def read_regular(path: Path | str) -> bytes:
    """Returns the content of a file that tile-oracle has written, however large. Raises OSError as
    `open_regular` does."""
    with open_regular(path) as file:
        return file.read()


def read_bytes(path: Path | str, limit: int) -> bytes:
    """Returns the content of a file. Raises OSError, with a strerror fit for a message, for a file of more
    than `limit` bytes or a path that is not a regular file."""
    with open_regular(path) as file:
        # Reads one byte more than allowed, because the file may grow after its size was checked.
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {_size(limit)}", str(path))
    return data


def _size(limit: int) -> str:
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if limit >= 1 << bits:
            return f"{limit >> bits} {unit}"
    return f"{limit} bytes"
