"""Records which kernel a session was running when it died, to find kernels that kill sessions.

A session has one small file in the run's folder, its slot, which it locks while it lives. The worker notes in
it when a kernel is about to run and when it has returned. The note is a write to the page cache, which
survives the death of any process. When a problem begins, the slot is flushed to disk, so at least the problem
is known after the machine crashes. On that problem, the next session flushes the start of every kernel. A
session that ends normally removes its slot.

A slot that nobody locks is that of a dead session. After the second death at the same kernel, the kernel is
not run again.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.files.locks import take
from tile_oracle.record.owner import boot

_GLOB = ".attempt-*"
_BYTES = 2048
_RUNNING, _AT_REST = b"r", b"-"
_MOST_DEATHS = 2


def _page(problem: str, kernel: str, *, careful: bool, boot: str) -> bytes:
    body = json.dumps([problem, kernel, careful, boot], separators=(",", ":")).encode()
    return f"{zlib.crc32(body):08x} ".encode() + body


class _Slot:
    """An open slot. If it cannot be written, measurements continue and deaths are not detected."""

    def __init__(self) -> None:
        self._fd = -1
        self._boot = boot()

    def _write(self, data: bytes) -> None:
        with suppress(OSError):
            os.pwrite(self._fd, data, 0)

    def sync(self) -> None:
        """Flushes what was written to the disk."""
        with suppress(OSError, ValueError):  # ValueError: it is not open
            os.fdatasync(self._fd)


class AttemptSlot(_Slot):
    """The worker's side of a slot."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with suppress(OSError):
            self._fd = os.open(path, os.O_WRONLY)
        self._problem = ""
        self._careful = False

    def load(self, problem: str, *, careful: bool) -> None:
        """Sets the problem of the next kernels. careful: flush the start of every kernel to disk."""
        self._problem, self._careful = problem, careful
        self.end()

    def begin(self, kernel: str) -> None:
        """Notes that a kernel is about to run."""
        if self._fd < 0 or not kernel:
            return
        body = _page(self._problem, kernel, careful=self._careful, boot=self._boot)
        self._write((_RUNNING + body).ljust(_BYTES))
        if self._careful:
            self.sync()

    def end(self) -> None:
        """Notes that the kernel has returned, or can no longer kill the session."""
        self._write(_AT_REST)


@dataclass(frozen=True)
class _Death:
    path: Path
    problem: str
    kernel: str
    """Empty if only the problem is known."""


class Attempts(_Slot):
    """The slots of a run: this session's own, and those of dead sessions."""

    def __init__(self, folder: Path, writer: str) -> None:
        super().__init__()
        self.path: Path | None = folder / f".attempt-{writer}"
        self._deaths = _read_deaths(folder, self._boot)
        assert self.path is not None
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            take(self._fd)
            os.pwrite(self._fd, _AT_REST.ljust(_BYTES), 0)
        except OSError:
            self.close()  # the disk is full: deaths are not detected, measurements continue
            self.path = None

    def note_problem(self, problem: str) -> None:
        """Notes that a problem is about to begin; `sync` flushes it to the disk."""
        page = _page(problem, "", careful=self.careful(problem), boot=self._boot)
        self._write((_AT_REST + page).ljust(_BYTES))

    def careful(self, problem: str) -> bool:
        """Returns whether a session has died at this problem."""
        return any(death.problem == problem for death in self._deaths)

    def blamed(self, problem: str, kernel: str) -> bool:
        """Returns whether too many sessions died at this kernel to run it again."""
        there = [death for death in self._deaths if death.problem == problem]
        sure = sum(death.kernel == kernel for death in there)
        return sure > 0 and sure + sum(not death.kernel for death in there) >= _MOST_DEATHS

    def finished(self, problem: str, kernel: str | None = None) -> None:
        """Clears earlier deaths of a kernel whose result is recorded; None: of all kernels of the problem."""
        if not self._deaths:
            return
        over = [d for d in self._deaths if d.problem == problem and (kernel is None or d.kernel == kernel)]
        for death in over:
            with suppress(OSError):
                death.path.unlink()
            self._deaths.remove(death)

    def close(self) -> None:
        """Removes the slot at the normal end of the session. May be called twice."""
        if self._fd >= 0:
            if self.path is not None:
                with suppress(OSError):
                    self.path.unlink()
            os.close(self._fd)
            self._fd = -1


def forget_settled(folder: Path, recorded: Callable[[], Collection[tuple[str, str]]]) -> None:
    """Removes slots of dead sessions that nobody needs: no kernel ran, or its result is recorded.

    recorded: reads the pairs of problem and kernel that the run has; called only if there are such slots.
    """
    deaths = _read_deaths(folder, boot())
    known = recorded() if deaths else ()
    for death in deaths:
        if (death.problem, death.kernel) in known:
            with suppress(OSError):
                death.path.unlink()


def _read_deaths(folder: Path, boot: str) -> list[_Death]:
    deaths = []
    try:
        paths = sorted(folder.glob(_GLOB))
    except OSError:
        return []  # as on a full disk: deaths are not detected, measurements continue
    for path in paths:
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if not take(fd):
                    continue  # its session lives
                death = _read_death(path, os.pread(fd, _BYTES, 0), boot)
                if death is None:
                    path.unlink()
                else:
                    deaths.append(death)
            finally:
                os.close(fd)
    return deaths


def _read_death(path: Path, page: bytes, boot: str) -> _Death | None:
    """Returns the content of a dead session's slot; None if no kernel was running, or the slot is damaged."""
    digits, _, body = page[1:].rstrip(b" \0\n").partition(b" ")
    try:
        whole = zlib.crc32(body) == int(digits, 16)
        problem, kernel, careful, its_boot = json.loads(body) if whole else ("", "", False, "")
    except ValueError:
        return None
    if not whole or not all(isinstance(text, str) for text in (problem, kernel, its_boot)):
        return None
    if its_boot != boot and not careful:
        # The machine crashed: what is on disk may be older than the last write.
        return _Death(path, problem, "")
    if page[:1] != _RUNNING:
        return None
    return _Death(path, problem, kernel)
