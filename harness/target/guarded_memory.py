"""Memory that catches a kernel red-handed: no-access pages on both sides, inputs that cannot be written."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_PAGE = mmap.PAGESIZE
_NONE, _READ, _WRITE = 0, mmap.PROT_READ, mmap.PROT_WRITE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedBuffer:
    """`size` bytes between two pages that cannot be touched.

    flush: the last byte borders on the guard page, so that reading or writing one element too many
    faults at once; the start is then aligned to the element only. Otherwise the start is 64-byte aligned
    and stray access up to the next page boundary goes unseen: for timing, where alignment counts.
    Raises MemoryError when there is not so much memory.
    """

    def __init__(self, size: int, *, flush: bool) -> None:
        self.size = size
        self._inner = max(_PAGE, -(-size // _PAGE) * _PAGE)
        try:
            self._map = mmap.mmap(-1, self._inner + 2 * _PAGE)
        except (OSError, OverflowError, ValueError):
            raise MemoryError(f"{size:,} bytes cannot be had") from None
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._offset = _PAGE + (self._inner - size if flush else 0)
        self._protect(self._base, _PAGE, _NONE)
        self._protect(self._base + _PAGE + self._inner, _PAGE, _NONE)

    @property
    def address(self) -> int:
        return self._base + self._offset

    def view(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The bytes as an array."""
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._map, dtype, count, self._offset).reshape(shape)

    def make_read_only(self) -> None:
        self._protect(self._base + _PAGE, self._inner, _READ)

    def slack_is(self, value: int) -> bool:
        """Whether the bytes between guard page and data still hold `value` (what a stray write shows in)."""
        before = np.frombuffer(self._map, np.uint8, self._offset - _PAGE, _PAGE)
        after = np.frombuffer(
            self._map, np.uint8, _PAGE + self._inner - self._offset - self.size, self._offset + self.size
        )
        return bool((before == value).all() and (after == value).all())

    def fill(self, value: int) -> None:
        """Set every byte, slack included."""
        ctypes.memset(self._base + _PAGE, value, self._inner)

    def _protect(self, address: int, size: int, protection: int) -> None:
        if _LIBC.mprotect(address, size, protection):
            raise MemoryError("cannot protect pages: too many memory mappings")


def holding(array: npt.NDArray[Any], *, flush: bool) -> GuardedBuffer:
    """A read-only buffer with the array's bytes."""
    buffer = GuardedBuffer(array.nbytes, flush=flush)
    buffer.view(array.dtype, array.shape)[...] = array
    buffer.make_read_only()
    return buffer
