"""Notices when a kernel has changed the code of the clock that times it.

The worker's clock is the C library's clock_gettime, which reads the time in the vDSO. A kernel runs in the
same process and can make this memory writable. So the code, and the pointers that lead to it, are compared
with a copy from the worker's start.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.files.passing_errors import unless_passing

_PAGE = 4096
_CODE_BYTES = 2 * _PAGE
"""The part of the C library's code that is compared, from the page of clock_gettime on."""
_LOADER = "ld-"
_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


@dataclass(frozen=True)
class _Mapping:
    """One line of /proc/self/maps."""

    first: int
    last: int
    rights: str
    file: str

    def holds(self, address: int) -> bool:
        return self.first <= address < self.last


class ClockCode:
    """The bytes of the clock's code as they were when this was made.

    now: address of clock_gettime. own: further code of the clock, as (address, bytes).
    """

    def __init__(self, now: int, own: Sequence[tuple[int, int]] = ()) -> None:
        places = [*own, *_places(now, _mappings())]
        self._copies = [(address, ctypes.string_at(address, size)) for address, size in places]

    def changed(self) -> bool:
        """Returns whether the code, or a pointer to it, differs now."""
        return any(_LIBC.memcmp(address, copy, len(copy)) for address, copy in self._copies)


def _places(now: int, mappings: Sequence[_Mapping]) -> Iterator[tuple[int, int]]:
    """Yields the code of clock_gettime, the vDSO, and the pointers that lead to it.

    The C library calls the vDSO through a pointer that it, or the dynamic loader, keeps in memory that is
    read-only once the program has started (RELRO): the mapping before the file's writable one.
    """
    home = next((one for one in mappings if one.holds(now)), None)
    if home is None:
        return
    first = now - now % _PAGE
    yield first, min(_CODE_BYTES, home.last - first)
    for one, after in zip(mappings, [*mappings[1:], None], strict=True):
        if one.file == "[vdso]":
            yield one.first, one.last - one.first
        known = one.file == home.file or Path(one.file).name.startswith(_LOADER)
        relro = after is not None and after.file == one.file and after.rights.startswith("rw")
        if known and relro and one.rights.startswith("r--"):
            yield one.first, one.last - one.first


def _mappings() -> list[_Mapping]:
    """Returns the memory of this process, in the order of its addresses; empty where the system does not
    tell."""
    found = []
    lines: list[str] = []
    with unless_passing():
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    for line in lines:
        span, rights, _, _, _, *file = line.split(maxsplit=5)
        first, last = (int(part, 16) for part in span.split("-"))
        found.append(_Mapping(first, last, rights, file[0] if file else ""))
    return found
