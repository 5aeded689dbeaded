"""Lists the entries of the binary cache and prunes those not used for a long time.

Pruning is safe while sessions build and load: an entry is removed by one rename, under its build lock.
Entries that were used within the last week are always kept: a session that looked them up may still run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.compiling.cache import BuildCache
from tile_oracle.errors import BuildError
from tile_oracle.files.disk_errors import disk_errors_as

IN_USE_S = 7 * 24 * 3600.0
"""An entry used this recently may still be loaded by a running session, so it is never removed."""

_SUFFIX = ".entry"


@dataclass(frozen=True)
class EntryUse:
    """One entry: size on disk, time of the last build or lookup (seconds since the epoch), and what it is.

    what: the kernel's architecture, "native selector", or "damaged" if the entry's facts cannot be read.
    """

    key: str
    bytes: int
    used_s: float
    what: str


@dataclass(frozen=True)
class Pruned:
    """The entries that pruning removed (or, in a dry run, would remove) and those it kept."""

    removed: tuple[EntryUse, ...]
    kept: tuple[EntryUse, ...]

    @property
    def kept_bytes(self) -> int:
        return sum(entry.bytes for entry in self.kept)


def entries_in(folder: Path) -> list[EntryUse]:
    """All entries of a cache folder, least recently used first; empty when the folder does not exist."""
    found = []
    for place in folder.glob(f"[0-9a-f][0-9a-f]/{'[0-9a-f]' * 64}{_SUFFIX}"):
        # Another session may remove an entry meanwhile.
        with suppress(OSError):
            size = sum(file.stat().st_size for file in place.iterdir())
            found.append(
                EntryUse(place.name.removesuffix(_SUFFIX), size, place.stat().st_mtime, _what(place))
            )
    return sorted(found, key=lambda entry: (entry.used_s, entry.key))


def prune(
    folder: Path,
    now_s: float,
    unused_for_s: float | None = None,
    keep_bytes: int | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Pruned:
    """Removes entries unused for `unused_for_s`, then the least recently used beyond `keep_bytes` in total.

    Entries used within `IN_USE_S` and entries being built are kept. `progress` is called with
    (entries processed, entries to process). Raises BuildError if the folder cannot be written.
    """
    entries = entries_in(folder)
    chosen = _chosen(entries, now_s, unused_for_s, keep_bytes)
    cache = BuildCache(folder)
    removed: list[EntryUse] = []
    kept = [entry for entry in entries if entry not in chosen]
    for count, entry in enumerate((entry for entry in entries if entry in chosen), start=1):
        gone = dry_run or _removed(cache, entry)
        (removed if gone else kept).append(entry)
        if progress is not None:
            progress(count, len(chosen))
    return Pruned(tuple(removed), tuple(kept))


def _chosen(
    entries: Sequence[EntryUse], now_s: float, unused_for_s: float | None, keep_bytes: int | None
) -> frozenset[EntryUse]:
    free = [entry for entry in entries if now_s - entry.used_s > IN_USE_S]
    chosen = {e for e in free if unused_for_s is not None and now_s - e.used_s > unused_for_s}
    left = sum(entry.bytes for entry in entries) - sum(entry.bytes for entry in chosen)
    for entry in free:
        if keep_bytes is None or left <= keep_bytes:
            break
        if entry not in chosen:
            chosen.add(entry)
            left -= entry.bytes
    return frozenset(chosen)


def _removed(cache: BuildCache, entry: EntryUse) -> bool:
    """Whether an entry was free and was removed. Raises BuildError."""
    with disk_errors_as(BuildError, f"the build folder {cache.folder} cannot be pruned"):
        lock = cache.try_lock(entry.key)
        if lock is None:
            return False
        with lock, cache.work_folder() as work:
            place = cache.folder / entry.key[:2] / (entry.key + _SUFFIX)
            with suppress(FileNotFoundError):
                if place.stat().st_mtime != entry.used_s:
                    return False
                place.rename(work / "pruned")
                shutil.rmtree(work / "pruned", ignore_errors=True)
        return True


def _what(place: Path) -> str:
    try:
        facts = json.loads((place / "entry.json").read_bytes())
        return str(facts["arch"] if "arch" in facts else facts["what"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "damaged"
