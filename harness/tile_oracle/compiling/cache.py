"""A content-addressed cache of binaries, shared by any number of concurrent sessions.

Layout of the folder:

    ab/abcdef….entry/kernel.so      the binary (kernel.hsaco, kernel.ptx, kernel.cubin for GPUs)
    ab/abcdef….entry/entry.json     its size, sha256 and provenance
    ab/abcdef….entry/kernel.cpp     its translation unit, for reference (kernel.hip, kernel.cu)
    ab/abcdef….lock                 locked by the session that builds this entry
    ab/abcdef….log                  compiler output of this entry's last failed build
    work/…                          working folders of running compilers

A complete entry is renamed into place, so an entry is never partial. A killed compiler leaves a work folder,
which a later session removes. The log of a failed build counts as the result for sessions that were already
running; a new session compiles again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.errors import BuildError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.locks import take
from tile_oracle.files.trusted_folder import check_part_trusted, check_trusted, make_folder

_KEY = re.compile(r"[0-9a-f]{64}")
_STALE_WORK_S = 24 * 3600.0
_USE_NOTED_S = 3600.0
_FACTS = "entry.json"
_WHAT = "the binaries"


def default_cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """TILE_ORACLE_CACHE, else tile-oracle in XDG_CACHE_HOME, else ~/.cache/tile-oracle."""
    env = os.environ if environment is None else environment
    if env.get("TILE_ORACLE_CACHE"):
        return Path(env["TILE_ORACLE_CACHE"]).absolute()
    # The XDG specification says to ignore a relative path.
    if env.get("XDG_CACHE_HOME", "").startswith("/"):
        return Path(env["XDG_CACHE_HOME"]) / "tile-oracle"
    home = env.get("HOME", "")
    if home.startswith("/"):
        return Path(home) / ".cache" / "tile-oracle"
    try:
        return Path.home() / ".cache" / "tile-oracle"
    except RuntimeError:
        raise BuildError(
            "there is no home folder to keep compiled kernels in: set TILE_ORACLE_CACHE or --build-dir"
        ) from None


def check_runs_code(folder: Path) -> None:
    """Raises BuildError for a folder that binaries cannot be loaded from. It need not exist."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    if os.statvfs(there).f_flag & os.ST_NOEXEC:
        raise BuildError(
            f"no kernel can be loaded from {folder}: its file system is mounted noexec. Name a folder "
            "elsewhere with --build-dir or TILE_ORACLE_CACHE"
        )


def content_key(parts: Mapping[str, Any]) -> str:
    """sha256 over everything that determines a binary, hexadecimal."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class CacheEntry:
    """One binary in the cache. Its checksum was verified at lookup."""

    path: Path
    bytes: int
    facts: Mapping[str, Any]


class BuildCache:
    """The cache.

    Lookups write nothing but the time of last use. A read-only cache therefore works as long as every lookup
    hits.
    """

    def __init__(self, folder: Path, suffix: str = ".so", source_suffix: str = ".cpp") -> None:
        """`suffix` and `source_suffix`: file name suffixes of binaries and translation units.

        Raises BuildError for a folder that other users may change.
        """
        self.folder = folder.absolute()
        check_trusted(self.folder, _WHAT)
        self._binary, self._source = "kernel" + suffix, "kernel" + source_suffix
        self._swept = False

    def _place(self, key: str, suffix: str) -> Path:
        if not _KEY.fullmatch(key):
            raise BuildError(f"{key!r} is not a cache key: 64 hexadecimal digits")
        return self.folder / key[:2] / (key + suffix)

    def find(self, key: str) -> CacheEntry | None:
        """Returns the entry of a key, or None when there is none or it is damaged.

        Raises BuildError for one that other users may change.
        """
        folder = self._place(key, ".entry")
        check_part_trusted((self.folder, folder.parent, folder, folder / self._binary), self.folder, _WHAT)
        try:
            facts = json.loads((folder / _FACTS).read_bytes())
            content = (folder / self._binary).read_bytes()
            good = facts["sha256"] == hashlib.sha256(content).hexdigest()
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not good:
            return None
        # The folder's mtime is the time of last use (to the hour), for removing old ones.
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _USE_NOTED_S:
                os.utime(folder)
        return CacheEntry(folder / self._binary, len(content), facts)

    def try_lock(self, key: str) -> ExitStack | None:
        """Locks a key for building, until the stack is closed or this process exits, even by a crash; None
        while another session holds the lock. Raises BuildError."""
        path = self._place(key, ".lock")
        with self.writing():
            make_folder(path.parent)
            while True:
                with ExitStack() as held:
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                    held.callback(os.close, descriptor)
                    if not take(descriptor):
                        return None
                    if _is_still(path, descriptor):
                        held.callback(_remove, path)  # so that lock files do not accumulate
                        return held.pop_all()
                # The previous holder removed the file after we opened it and before we locked it.

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """Yields a fresh folder for one build, on the cache's file system, removed on exit."""
        with self.writing():
            work = self.folder / "work"
            make_folder(work)
            self._sweep(work)
            folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=work))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def add(self, key: str, binary: Path, source: str, facts: Mapping[str, Any]) -> CacheEntry:
        """Adds a binary to the cache and replaces a damaged entry. Raises BuildError.

        `binary` is in a work folder and is moved from there. The caller holds the key's lock.
        """
        place = self._place(key, ".entry")
        with self.writing():
            content = binary.read_bytes()
            entry = binary.parent / "entry"
            make_folder(entry)
            all_facts = dict(facts) | {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            # No fsync: the sha256 detects what a power failure damages, and the entry is built again.
            binary.chmod(binary.stat().st_mode & ~0o022)  # a compiler's umask may let others write it
            binary.rename(entry / self._binary)
            (entry / _FACTS).write_text(json.dumps(all_facts, sort_keys=True, indent=1) + "\n", "utf-8")
            (entry / self._source).write_text(source, "utf-8")
            make_folder(place.parent)
            try:
                entry.rename(place)
            except OSError:
                if not place.exists():
                    raise
                if (there := self.find(key)) is not None:
                    return there
                place.rename(binary.parent / "damaged")
                entry.rename(place)
            with suppress(FileNotFoundError):
                self._place(key, ".log").unlink()
        return CacheEntry(place / self._binary, len(content), all_facts)

    def keep_log(self, key: str, log: str) -> None:
        """Stores the compiler output of a failed build. Raises BuildError."""
        path = self._place(key, ".log")
        with self.writing():
            path.write_text(log, "utf-8")

    def log_since(self, key: str, time_s: float) -> str | None:
        """Returns the compiler output if this entry failed to build after `time_s` (seconds since the epoch).

        The workers of one session share the failure this way, and do not all compile the kernel.
        """
        path = self._place(key, ".log")
        try:
            return path.read_text("utf-8", "replace") if path.stat().st_mtime >= time_s else None
        except OSError:
            return None

    def _sweep(self, work: Path) -> None:
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - _STALE_WORK_S
        for folder in work.iterdir():
            with suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raises BuildError for what the disk refuses inside the block."""
        with disk_errors_as(
            BuildError,
            f"the build folder {self.folder} cannot be written",
            "name another with --build-dir or TILE_ORACLE_CACHE",
        ):
            yield


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _is_still(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
