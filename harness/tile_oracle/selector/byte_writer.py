"""Writes the binary format of selector files: little-endian numbers, and arrays and texts with their
length."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class ByteWriter:
    """The counterpart of `tile_oracle/byte_reader.hpp`. Arrays and texts begin with their length as u32;
    everything is aligned to 4 bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def u32(self, *values: int) -> None:
        self._parts.append(struct.pack(f"<{len(values)}I", *values))

    def u32s(self, values: Sequence[int] | Any) -> None:
        self._numbers(values, "<u4")

    def _numbers(self, values: Any, kind: str) -> None:
        array = np.ascontiguousarray(values, dtype=kind)
        self.u32(array.size)
        self._parts.append(array.tobytes())

    def f32s(self, values: Sequence[float] | Any) -> None:
        self._numbers(values, "<f4")

    def f64s(self, values: Sequence[float] | Any) -> None:
        self._numbers(values, "<f8")

    def data(self, data: bytes) -> None:
        self.u32(len(data))
        self._parts.append(data + bytes(-len(data) % 4))

    def text(self, text: str) -> None:
        self.data(text.encode())

    def texts(self, texts: Iterable[str]) -> None:
        listed = list(texts)
        self.u32(len(listed))
        for text in listed:
            self.text(text)

    def written(self) -> bytes:
        return b"".join(self._parts)
