"""Memory that catches stray accesses: no-access pages on both sides, read-only inputs."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_PAGE = mmap.PAGESIZE
_NONE, _READ, _WRITE = 0, mmap.PROT_READ, mmap.PROT_WRITE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_LIBC.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
_LIBC.mremap.restype = ctypes.c_void_p
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_MREMAP_MAYMOVE = 1
_FAILED = ctypes.c_void_p(-1).value


_MOST_PAGES = 64
_PRESENT = (ctypes.c_ubyte * _MOST_PAGES)()
_PRESENT_AT = ctypes.addressof(_PRESENT)
_LIVE: dict[int, int] = {}
"""Base -> bytes between the guard pages of each buffer that exists."""


class GuardedBuffer:
    """`size` bytes between two guard pages.

    flush: the buffer ends at the guard page, so that accessing one element too many faults at once. Its start
    is then only aligned to the element. Otherwise the start is 64-byte aligned, as timing needs, and stray
    accesses up to the next page boundary go unnoticed.
    skew: offset of the start from the 64-byte boundary; less than 64 bytes, and not with `flush`.
    Raises MemoryError when there is not enough memory.
    """

    def __init__(self, size: int, *, flush: bool, skew: int = 0) -> None:
        self.size = size
        self._alias: int | None = None
        self._inner = max(_PAGE, -(-(size + skew) // _PAGE) * _PAGE)
        try:
            self._map = mmap.mmap(-1, self._inner + 2 * _PAGE)
        except (OSError, OverflowError, ValueError):
            raise MemoryError(f"cannot allocate {size:,} bytes") from None
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._offset = _PAGE + (self._inner - size if flush else skew)
        self._protect(self._base, _PAGE, _NONE)
        self._protect(self._base + _PAGE + self._inner, _PAGE, _NONE)
        _LIVE[self._base] = self._inner

    @property
    def address(self) -> int:
        return self._base + self._offset

    def view(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Returns the bytes as an array."""
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._map, dtype, count, self._offset).reshape(shape)

    @property
    def writable_address(self) -> int:
        """A second, writable address of the same bytes, for when the first is read-only."""
        if self._alias is None:
            # With an old size of 0, mremap maps shared pages a second time (man 2 mremap).
            alias = _LIBC.mremap(self._base + _PAGE, 0, self._inner, _MREMAP_MAYMOVE)
            if alias in (None, _FAILED):
                raise MemoryError("cannot map a buffer twice: too many memory mappings")
            self._alias = int(alias)
            self._protect(self._alias, self._inner, _READ | _WRITE)
        return self._alias + self._offset - _PAGE

    def __del__(self) -> None:
        _LIVE.pop(getattr(self, "_base", 0), None)
        if getattr(self, "_alias", None) is not None:
            _LIBC.munmap(self._alias, self._inner)

    def make_read_only(self) -> None:
        self._protect(self._base + _PAGE, self._inner, _READ)

    def slack_is(self, value: int) -> bool:
        """Returns whether the bytes between guard pages and data still hold `value`. A stray write changes
        them."""
        end = self._offset + self.size
        before, after = self._map[_PAGE : self._offset], self._map[end : _PAGE + self._inner]
        return before.count(value) == len(before) and after.count(value) == len(after)

    def fill(self, value: int) -> None:
        """Sets every byte, including the slack."""
        ctypes.memset(self._base + _PAGE, value, self._inner)

    def _protect(self, address: int, size: int, protection: int) -> None:
        if _LIBC.mprotect(address, size, protection):
            raise MemoryError("cannot protect pages: too many memory mappings")


def touched_guards() -> bool:
    """Returns whether a guard page of any buffer has memory, or is not mapped: somebody has made it
    accessible and used it.

    False where huge pages may hold guards together with data.
    """
    return not _HUGE_PAGES and any(_guard_is_present(base, inner) for base, inner in _LIVE.items())


def _guard_is_present(base: int, inner: int) -> bool:
    size = inner + 2 * _PAGE
    if size <= _MOST_PAGES * _PAGE:
        failed, last = _LIBC.mincore(base, size, _PRESENT_AT), size // _PAGE - 1
    else:
        failed, last = _LIBC.mincore(base, _PAGE, _PRESENT_AT), 1
        failed |= _LIBC.mincore(base + _PAGE + inner, _PAGE, _PRESENT_AT + 1)
    return bool(failed or (_PRESENT[0] | _PRESENT[last]) & 1)


def guarded_bytes() -> int:
    """Returns the memory of all buffers, in bytes."""
    return sum(_LIVE.values())


def _shared_memory_has_huge_pages() -> bool:
    try:
        chosen = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text()
    except OSError:
        return False
    return not any(word in chosen for word in ("[never]", "[advise]", "[deny]"))


_HUGE_PAGES = _shared_memory_has_huge_pages()


def holding(array: npt.NDArray[Any], *, flush: bool, skew: int = 0) -> GuardedBuffer:
    """Returns a read-only buffer with a copy of the array."""
    buffer = GuardedBuffer(array.nbytes, flush=flush, skew=skew)
    buffer.view(array.dtype, array.shape)[...] = array
    buffer.make_read_only()
    return buffer
