"""Tuned results: the best measured kernel of a problem, stored on disk and used only while it is valid.

There is one file per architecture, `tuned/ARCH.jsonl` in the project's cache folder, with lines like those of
a journal (record.journal_line). They are appended under a lock and never changed: damaged lines stay, and are
ignored. Later lines replace earlier ones of the same problem and environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from tile_oracle.compiling.cache import default_cache_folder
from tile_oracle.errors import KernelError, TunedError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.locks import held
from tile_oracle.files.user_file import open_regular
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.problem import Problem
from tile_oracle.record.journal_line import decode_lines, encode_line
from tile_oracle.version import __version__

_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e300)]

_ARCH = re.compile(r"[a-z0-9_]{1,40}")
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class TunedEntry:
    """The best measured kernel of a problem, and its environment.

    kernels: number of kernels measured to find it. source_hash: of the kernel's binary. time: ISO 8601, UTC.
    """

    problem: str
    kernel: str
    latency_ms: _Positive
    tflops: _Positive
    kernels: int
    target: str
    arch: str
    device: str
    driver: str
    toolchain: str
    source_hash: str
    time: str
    harness_version: str = __version__

    @property
    def identity(self) -> tuple[str, ...]:
        """The key of an entry: a later entry replaces an earlier one with the same identity."""
        return (self.problem, self.target, self.arch, self.device, self.toolchain)


@dataclass(frozen=True)
class Surroundings:
    """The environment in which an entry is valid. source_hash: computes the hash of a kernel's binary as it
    would be built now, over source, headers, flags and compiler. toolchain: the compiler's name, "" without
    one."""

    target: str
    arch: str
    device: str
    toolchain: str
    source_hash: Callable[[Kernel], str]


@dataclass(frozen=True)
class Found:
    """The result of a lookup: a tuned kernel, or none. stale: why an existing entry is not valid, "" if there
    is no entry."""

    kernel: Kernel | None = None
    entry: TunedEntry | None = None
    stale: str = ""


class TunedResults:
    """The tuned results of an architecture, read once on construction; `add` appends.

    notes: messages for the user, for example about a damaged file.
    """

    def __init__(self, arch: str, folder: Path | None = None) -> None:
        """folder: default `tuned` in the cache folder; it is created by the first `add`.

        Raises TunedError for an architecture name that is not valid in a file name.
        """
        if not _ARCH.fullmatch(arch):
            raise TunedError(f"{arch!r} is not the name of an architecture")
        self.path = (folder or default_cache_folder() / "tuned").absolute() / f"{arch}.jsonl"
        self.notes: list[str] = []
        self._entries: dict[str, dict[tuple[str, ...], TunedEntry]] = {}
        self._load()

    def __len__(self) -> int:
        """The number of problems with an entry."""
        return len(self._entries)

    def knows(self, problem: Problem) -> bool:
        """Returns whether a problem has an entry, valid or stale."""
        return problem.id in self._entries

    def entries(self) -> Iterator[TunedEntry]:
        """Yields all entries, valid or stale."""
        for of_problem in self._entries.values():
            yield from of_problem.values()

    def find(self, problem: Problem, here: Surroundings) -> Found:
        """Returns the problem's tuned kernel if it is valid, else why not."""
        stale = ""
        for entry in sorted(self._entries.get(problem.id, {}).values(), key=lambda e: e.time, reverse=True):
            kernel, reason = _validated(entry, problem, here)
            if kernel is not None:
                return Found(kernel, entry)
            stale = stale or f"the tuned result of {entry.time[:10]} is stale: {reason}"
        return Found(stale=stale)

    def add(self, entries: Iterable[TunedEntry]) -> None:
        """Appends entries, each atomically. Raises TunedError if the file cannot be written."""
        new = list(entries)
        if not new:
            return
        text = _lines(new)
        with disk_errors_as(
            TunedError, f"tuned results cannot be written to {self.path}", "name another folder"
        ):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with held(self.path.with_suffix(".lock")), self.path.open("ab+") as file:
                end = file.seek(0, os.SEEK_END)
                if end:
                    file.seek(end - 1)
                    # A power cut can leave half a line, which must not merge with this one.
                    text = text if file.read(1) == b"\n" else b"\n" + text
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for entry in new:
            self._take(entry)

    # ---- the file -----------------------------------------------------------------------------

    def _load(self) -> None:
        try:
            data = self._read()
        except OSError as error:
            self.notes.append(
                f"{self.path} cannot be read ({error.strerror or error}): no tuned result is used"
            )
            return
        entries, damaged = _parsed(data)
        for entry in entries:
            self._take(entry)
        if damaged:
            kept = f"the whole lines of {len(self)} problems are used"
            self.notes.append(f"damaged lines of {self.path} are ignored ({damaged:,}); {kept}")

    def _read(self) -> bytes:
        try:
            with open_regular(self.path) as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return b""
        if len(data) > _MOST_BYTES:
            raise OSError(0, f"larger than {_MOST_BYTES >> 20} MiB")
        return data

    def _take(self, entry: TunedEntry) -> None:
        self._entries.setdefault(entry.problem, {})[entry.identity] = entry


def _validated(entry: TunedEntry, problem: Problem, here: Surroundings) -> tuple[Kernel | None, str]:
    """Returns the entry's kernel, or why it is stale."""
    for name, what in (("target", "measured on target"), ("arch", "measured for"), ("device", "measured on")):
        have, wanted = getattr(entry, name), getattr(here, name)
        if have != wanted:
            return None, f"{what} {have}, here it is {wanted}"
    try:
        kernel = parse_kernel_name(entry.kernel)
    except KernelError as error:
        return None, str(error)
    if not kernel.matches(problem):
        return None, f"{entry.kernel} is not a kernel for the problem"
    # The hash covers the compiler. Its name is only for messages, because prebuilt kernels come from another
    # one.
    if entry.source_hash == here.source_hash(kernel):
        return kernel, ""
    if here.toolchain and entry.toolchain != here.toolchain:
        return None, f"built by {entry.toolchain}, here it is {here.toolchain}"
    return None, "the kernel's source, headers or flags have changed"


def _lines(entries: Iterable[TunedEntry]) -> bytes:
    return b"".join(encode_line(asdict(entry)) for entry in entries)


def _parsed(data: bytes) -> tuple[list[TunedEntry], int]:
    """Returns the valid entries of a file, in order, and its number of damaged lines."""
    lines = decode_lines(data if data.endswith(b"\n") else data + b"\n")
    entries, damaged = [], sum(map(bool, map(bytes.strip, lines.damaged)))
    for row in lines.rows:
        try:
            entries.append(msgspec.convert(row, TunedEntry))
        except msgspec.ValidationError:
            damaged += 1
    return entries, damaged
