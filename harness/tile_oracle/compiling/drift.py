"""Compares two versions of a pool: folders of `tile-oracle build`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.compiling.binary_identity import binary_identity
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder


@dataclass(frozen=True)
class PoolVersion:
    """One side of a comparison. `kernels`: name -> identity of its binary."""

    where: str
    made_by: str
    kernels: Mapping[str, str]

    def twins(self) -> tuple[tuple[str, ...], ...]:
        """Groups of two or more names with the same binary, sorted."""
        groups: dict[str, list[str]] = {}
        for name, identity in sorted(self.kernels.items()):
            groups.setdefault(identity, []).append(name)
        return tuple(sorted(tuple(names) for names in groups.values() if len(names) > 1))


@dataclass(frozen=True)
class Drift:
    """How B differs from A. Every tuple is sorted.

    renamed: (name in A, name in B) of one binary; only A has the first name and only B the second. changed:
    names in both whose binaries differ. same: names in both with one binary.
    """

    a: PoolVersion
    b: PoolVersion
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]
    same: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.gained or self.lost or self.renamed or self.changed)


def read_version(path: Path) -> PoolVersion:
    """Reads a folder of `tile-oracle build`. Raises BuildError, also for a damaged binary."""
    folder = PrebuiltFolder(path)
    kernels = {name: binary_identity(path / entry.binary) for name, entry in folder.entries.items()}
    return PoolVersion(str(path), f"{folder.facts.arch}, {folder.facts.toolchain}", kernels)


def drift(a: PoolVersion, b: PoolVersion) -> Drift:
    """Compares two versions of a pool."""
    both = a.kernels.keys() & b.kernels.keys()
    lost, gained = sorted(a.kernels.keys() - both), sorted(b.kernels.keys() - both)
    new_names: dict[str, list[str]] = {}
    for name in gained:
        new_names.setdefault(b.kernels[name], []).append(name)
    renamed = []
    for name in lost:
        identity = a.kernels[name]
        if new_names.get(identity):
            renamed.append((name, new_names[identity].pop(0)))
    old, new = {before for before, _ in renamed}, {after for _, after in renamed}
    changed = {name for name in both if a.kernels[name] != b.kernels[name]}
    return Drift(
        a,
        b,
        gained=tuple(name for name in gained if name not in new),
        lost=tuple(name for name in lost if name not in old),
        renamed=tuple(renamed),
        changed=tuple(sorted(changed)),
        same=tuple(sorted(both - changed)),
    )
