"""Settings of a GPU's context and stream by which one kernel changes its own time and that of its neighbours.

A library's code on the host may reserve a part of the L2 cache for its data, prefer local memory to cache, or
raise the priority of the stream, and all of this stays as it is for the kernels after it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One setting. getter, setter: the library's functions. number: which one, of functions that have many.

    of_stream: both functions take the stream, the number and the address of the value; otherwise the getter
    takes the address and the number, and the setter the number and the value. size: bytes of the value.
    """

    name: str
    getter: str
    setter: str
    size: int = 4
    number: int | None = None
    of_stream: bool = False


class Settings:
    """The settings of an open device as they were at first. Those that its library does not know are left
    out."""

    def __init__(self, library: Any, stream: int, settings: Sequence[Setting], reset_cache: str = "") -> None:
        """`reset_cache`: the function that gives reserved parts of the cache back."""
        self._reset_cache = getattr(library, reset_cache, None) if reset_cache else None
        self._library, self._stream = library, ctypes.c_void_p(stream)
        found = ((one, self._read(one)) for one in settings if hasattr(library, one.getter))
        self._first = [(one, value) for one, value in found if value is not None]

    def reset_cache(self) -> None:
        """Gives parts of the cache back that a kernel has reserved for its data."""
        if self._reset_cache is not None:
            self._reset_cache()

    def restored(self) -> tuple[str, ...]:
        """Returns the names of the settings that have changed. They are as at first again."""
        changed = [(one, first) for one, first in self._first if self._read(one) != first]
        for one, first in changed:
            self._write(one, first)
        return tuple(one.name for one, _ in changed)

    def _read(self, setting: Setting) -> bytes | None:
        value = ctypes.create_string_buffer(max(64, setting.size))
        order = (self._stream, *_number(setting), value) if setting.of_stream else (value, *_number(setting))
        failed = getattr(self._library, setting.getter)(*order)
        return None if failed else value.raw[: setting.size]

    def _write(self, setting: Setting, value: bytes) -> None:
        given: Any = ctypes.c_size_t(int.from_bytes(value, "little"))
        if setting.of_stream:
            given = ctypes.create_string_buffer(value, 64)
        stream = (self._stream,) if setting.of_stream else ()
        getattr(self._library, setting.setter)(*stream, *_number(setting), given)


def _number(setting: Setting) -> tuple[ctypes.c_int, ...]:
    return () if setting.number is None else (ctypes.c_int(setting.number),)
