"""Calls into a library's C interface, whose functions return a status number."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from tile_oracle.device.runtime.driver import RuntimeFailure

Prepare = Callable[..., Callable[[int], None]]
"""Given the addresses of the operands, the output and the workspace, returns what starts a run on a
stream."""
Prepared = tuple[int, Prepare]
"""The bytes of workspace of an algorithm, and its runs."""
Statuses = str | Mapping[int, str]


class LibraryFailure(RuntimeFailure):
    """A call returned an error. The driver finds out itself whether the device is still usable."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(call, code, name, sticky=False)


class Calls:
    """The functions of one loaded library, by their names without the prefix of all.

    Raises OSError when it cannot be loaded, ValueError without a function.

    signatures: function -> its argument types. statuses: number -> name, or the function that says it.
    """

    def __init__(
        self, path: Path, prefix: str, signatures: Mapping[str, tuple[Any, ...]], statuses: Statuses
    ) -> None:
        self.library, self.prefix, self._path = ctypes.CDLL(str(path)), prefix, path
        self._functions = {name: self._function(name, *types) for name, types in signatures.items()}
        self._statuses = statuses

    def _function(self, name: str, *arguments: Any, returns: Any = c_int) -> Any:
        try:
            function = getattr(self.library, self.prefix + name)
        except AttributeError:
            raise ValueError(f"{self._path} has no {self.prefix}{name}: a newer version is needed") from None
        function.argtypes, function.restype = arguments, returns
        return function

    def number(self, name: str) -> int:
        """Returns what a function without arguments returns, a size_t."""
        return int(self._function(name, returns=c_size_t)())

    def status(self, name: str, *arguments: Any) -> int:
        """Calls a function and returns its status."""
        return int(self._functions[name](*arguments))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Calls a function. Raises LibraryFailure unless it succeeds."""
        code = self.status(name, *arguments)
        if code:
            raise self.failure(name, code)

    def failure(self, name: str, code: int) -> LibraryFailure:
        """Returns the failure of a call."""
        if isinstance(self._statuses, str):
            said = self._function(self._statuses, c_int, returns=c_char_p)(code).decode()
        else:
            said = self._statuses.get(code, "an unknown status")
        return LibraryFailure(self.prefix + name, code, said)

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """Calls a function whose first argument is where it puts a handle."""
        handle = c_void_p()
        self(name, ctypes.byref(handle), *arguments)
        return handle


class StreamLibrary:
    """A library whose handle has the stream on which it starts what follows."""

    def __init__(self, calls: Calls) -> None:
        """Raises LibraryFailure."""
        self.calls, self.handle = calls, calls.made("Create")
        self._stream: int | None = None

    def use_stream(self, stream: int) -> None:
        """Let executions start on the stream."""
        if stream != self._stream:
            self.calls("SetStream", self.handle, stream)
            self._stream = stream


def channels_second(shape: Sequence[int], *, weight: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns extents and strides of a convolution's operand, with its channels as the second axis."""
    if weight:
        groups, outputs, *extents, channels = shape
        outer = groups * outputs
    else:
        outer, *extents, groups, inner = shape
        channels = groups * inner
    in_memory = (outer, *extents, channels)
    strides = [math.prod(in_memory[place + 1 :]) for place in range(len(in_memory))]
    return (outer, channels, *extents), (strides[0], strides[-1], *strides[1:-1])


def version_text(number: int) -> str:
    """Returns a version that NVIDIA's libraries give as one number, as in 9.1.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def word_of(value: int) -> str:
    """Returns a number as kernels' names have it."""
    return str(value) if value >= 0 else f"minus{-value}"
