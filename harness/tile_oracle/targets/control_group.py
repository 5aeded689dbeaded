"""The memory that this process's control groups leave, with version 1 and version 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tile_oracle.files.passing_errors import unless_passing

_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
"""Files with the limit and the use, and the line of memory.stat with what the system can take back."""


def memory_left_bytes() -> int | None:
    """Bytes that the group with the least memory leaves, of this process's group and those above it.

    None without a limit. Raises OSError when the groups cannot be read for the moment.
    """
    return min(_left(), default=None)


def _left() -> Iterator[int]:
    for folder, (limit, used, reclaimable) in _groups():
        with unless_passing():
            most = (folder / limit).read_text().strip()
            if most.isdigit():
                taken = int((folder / used).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield max(0, int(most) - taken + int(stat.get(reclaimable, 0)))


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yields the group and those above it.

    A container often shows its own group at the top of the tree, and names it as the machine does: then only
    the top exists.
    """
    lines: list[str] = []
    with unless_passing():
        lines = _OWN.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, files = (_ROOT / "memory", _VERSION_1) if controllers else (_ROOT, _VERSION_2)
        folder = top / path.lstrip("/")
        yield from ((place, files) for place in (folder, *folder.parents) if place.is_relative_to(top))
