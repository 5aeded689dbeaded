"""MessagePack, the part that the notes of AMD code objects are written in: maps, lists, text, integers."""

from __future__ import annotations

import struct
from typing import Any

_DEEPEST = 32
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {
    0xC4: (">B", "bytes"), 0xC5: (">H", "bytes"), 0xC6: (">I", "bytes"),
    0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"),
    0xDC: (">H", "list"), 0xDD: (">I", "list"), 0xDE: (">H", "map"), 0xDF: (">I", "map"),
}  # fmt: skip


def unpack(data: bytes) -> Any:
    """The first value of the data. Raises ValueError for what is cut short or no MessagePack."""
    return _Reader(data).value(_DEEPEST)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int) -> Any:
        if depth == 0:
            raise ValueError("nested too deeply")
        kind = self._take(1)[0]
        if kind <= 0x7F:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind <= 0x8F:
            return self._items("map", kind & 0x0F, depth)
        if kind <= 0x9F:
            return self._items("list", kind & 0x0F, depth)
        if kind <= 0xBF:
            return self._items("text", kind & 0x1F, depth)
        if kind in _LENGTHS:
            form, what = _LENGTHS[kind]
            return self._items(what, int(self._number(form)), depth)
        raise ValueError(f"byte {kind:#x} begins no value of MessagePack that is known here")

    def _items(self, what: str, count: int, depth: int) -> Any:
        if what == "bytes":
            return self._take(count)
        if what == "text":
            return self._take(count).decode("utf-8")
        if what == "list":
            return [self.value(depth - 1) for _ in range(self._possible(count))]
        result = {}
        for _ in range(self._possible(count)):
            key = self.value(depth - 1)
            if not isinstance(key, str | int):
                raise ValueError("a map's key is neither text nor a number")
            result[key] = self.value(depth - 1)
        return result

    def _possible(self, count: int) -> int:
        if count > len(self._data) - self._at:
            raise ValueError("more items than bytes")
        return count

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError("cut short")
        self._at += count
        return taken
