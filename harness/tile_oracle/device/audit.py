"""Checks after every kernel what the kernel has changed in its worker process.

A changed worker is replaced, so that no later kernel is affected. What is compared is the table of
`tile_oracle.device.process_state`, the processes left behind, and the inputs. The audit runs in the kernel's
own process: it catches faulty kernels, but a malicious kernel can deceive it.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tile_oracle.device.process_state import Reader, Row, rows

_SAMPLE_BYTES = 1 << 12


@dataclass(frozen=True)
class Report:
    """What the kernel has done to its worker.

    changes: of its state, in words. unfair: what it did that no fairly timed kernel does, as sentences
    without subject. processes: number of processes that it left behind.
    """

    changes: tuple[str, ...] = ()
    unfair: tuple[str, ...] = ()
    processes: int = 0


class Audit:
    """Compares the process with its state before the kernel, or before the first one.

    inputs: the memory that kernels read and must not change, as (address, bytes).
    channel: the file descriptor of the worker's channel.
    strict: no descriptor or thread may be added. False for devices whose drivers open files and start
    threads at any time.
    """

    def __init__(
        self, inputs: Callable[[], Sequence[tuple[int, int]]], channel: int, *, strict: bool
    ) -> None:
        self._inputs = inputs
        self._reader = Reader(channel, alone=strict)
        self._rows = rows(alone=strict)
        self._before: dict[Row, Any] = {}
        self._grown: dict[Row, tuple[int, ...]] = {}
        self._sums: dict[tuple[int, int], tuple[_Ends, int, int]] = {}

    def begin(self) -> None:
        """Must be called before a kernel runs."""
        self._reader.look()
        for row in self._rows:
            if not row.fresh and row in self._before:
                continue
            value = row.read(self._reader)
            if row.adds:
                value = tuple(v - g for v, g in zip(value, self._grown.get(row, (0, 0)), strict=True))
            self._before[row] = value

    def note_library(self) -> None:
        """Must be called after the harness has loaded a kernel's library."""
        self._reader.expect_mappings()

    def note_inputs(self) -> None:
        """Takes checksums of the inputs. Must be called after a problem was loaded."""
        self._reader.expect_mappings()
        self._sums = {}
        self._note(self._inputs())

    def _note(self, inputs: Iterable[tuple[int, int]]) -> None:
        for place in inputs:
            if place not in self._sums:
                ends = _ends(*place)
                self._sums[place] = ends, _sample(ends), _whole(*place)

    def end(self, *, thorough: bool = False) -> Report:
        """Reports what the last kernel did. thorough: check every byte of the inputs."""
        changes: list[str] = []
        unfair: list[str] = []
        processes = 0
        try:
            self._reader.look()
            for row, before in self._before.items():
                value = row.read(self._reader)
                if row.adds:
                    self._grown[row] = tuple(v - b for v, b in zip(value, before, strict=True))
                if value != before:
                    (unfair if row.unfair else changes).extend(row.say(before, value))
            processes = self._reader.processes(thorough=thorough)
            changes += self._changes_of_inputs(thorough=thorough)
        except Exception as error:  # the kernel may have broken the audit: closed descriptors
            unfair.append(f"can no longer be audited ({type(error).__name__}: {error})")
        return Report(tuple(changes), tuple(unfair), processes)

    def _changes_of_inputs(self, *, thorough: bool) -> list[str]:
        places = self._inputs()
        for place in places:
            sums = self._sums.get(place)
            if sums is None:
                continue
            ends, sample, whole = sums
            if _sample(ends) != sample or (thorough and _whole(*place) != whole):
                return ["inputs"]
        # These inputs exist only for this kernel's timing: damage to them shows in the kernel's own result.
        self._note(places)
        return []


_Ends = tuple[memoryview, ...]


def _ends(address: int, size: int) -> _Ends:
    """Returns the first and last bytes, which a stray write hits first; all of a small buffer."""
    if size <= 2 * _SAMPLE_BYTES:
        return (_bytes_at(address, size),)
    return _bytes_at(address, _SAMPLE_BYTES), _bytes_at(address + size - _SAMPLE_BYTES, _SAMPLE_BYTES)


def _sample(ends: _Ends) -> int:
    found = 0
    for end in ends:
        found = zlib.crc32(end, found)
    return found


def _whole(address: int, size: int) -> int:
    return zlib.crc32(_bytes_at(address, size))


def _bytes_at(address: int, size: int) -> memoryview:
    """Returns a view of the memory, not a copy."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
