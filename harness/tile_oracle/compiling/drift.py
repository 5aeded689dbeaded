"""Compares two versions of a pool: folders of binaries, or lists of kernel names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.compiling.binary_identity import binary_identity
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder, is_prebuilt_folder
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.files.user_file import read_bytes
from tile_oracle.kernel import parse_kernel_name

_MOST_LIST_BYTES = 64 << 20
_BINARIES = (".so", ".hsaco", ".ptx", ".cubin", ".zip")


@dataclass(frozen=True)
class PoolVersion:
    """One side of a comparison. `kernels`: name -> identity of its binary, "" if only names are known."""

    where: str
    made_by: str
    kernels: Mapping[str, str]

    def twins(self) -> tuple[tuple[str, ...], ...]:
        """Groups of two or more names with the same binary, sorted."""
        groups: dict[str, list[str]] = {}
        for name, identity in sorted(self.kernels.items()):
            if identity:
                groups.setdefault(identity, []).append(name)
        return tuple(sorted(tuple(names) for names in groups.values() if len(names) > 1))


@dataclass(frozen=True)
class Drift:
    """How B differs from A. Every tuple is sorted.

    renamed: (name in A, name in B) of one binary; only A has the first name and only B the second. changed:
    names in both whose binaries differ. same: names in both without a known difference.
    """

    a: PoolVersion
    b: PoolVersion
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]
    same: tuple[str, ...]

    @property
    def compares_binaries(self) -> bool:
        """Whether both sides have binaries. Between lists only names are compared."""
        return any(self.a.kernels.values()) and any(self.b.kernels.values())

    def __bool__(self) -> bool:
        return bool(self.gained or self.lost or self.renamed or self.changed)


def read_version(path: Path) -> PoolVersion:
    """Reads a folder of `tile-oracle build`, a build cache (--build-dir), or a text file of kernel names.

    A text file has one name per line. If a cache holds several binaries of a name, the newest counts.
    Raises BuildError for anything else, and for a damaged binary or an unknown name.
    """
    if is_prebuilt_folder(path):
        return _prebuilt(path)
    return _cache(path) if path.is_dir() else _listed(path)


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
        if identity and new_names.get(identity):
            renamed.append((name, new_names[identity].pop(0)))
    old, new = {before for before, _ in renamed}, {after for _, after in renamed}
    changed = {name for name in both if a.kernels[name] and b.kernels[name] not in ("", a.kernels[name])}
    return Drift(
        a,
        b,
        gained=tuple(name for name in gained if name not in new),
        lost=tuple(name for name in lost if name not in old),
        renamed=tuple(renamed),
        changed=tuple(sorted(changed)),
        same=tuple(sorted(both - changed)),
    )


def _prebuilt(path: Path) -> PoolVersion:
    folder = PrebuiltFolder(path)
    kernels = {name: binary_identity(path / entry.binary) for name, entry in folder.entries.items()}
    return PoolVersion(str(path), f"{folder.facts.arch}, {folder.facts.toolchain}", kernels)


def _cache(path: Path) -> PoolVersion:
    newest: dict[str, tuple[float, Path, str]] = {}
    try:
        for facts_file in path.glob("??/*.entry/entry.json"):
            facts = json.loads(facts_file.read_bytes())
            made = f"{facts['arch']}, {facts['toolchain']}"
            found = (facts_file.stat().st_mtime, facts_file.parent, made)
            name = facts["kernel"]
            if name not in newest or newest[name][:2] < found[:2]:
                newest[name] = found
        binaries = {
            name: next(file for file in sorted(entry.glob("kernel.*")) if file.suffix in _BINARIES)
            for name, (_, entry, _) in newest.items()
        }
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, StopIteration):
        raise BuildError(f"{path} holds a damaged entry: build into a new folder") from None
    if not newest:
        raise BuildError(f"{path} holds no kernels: give a folder of tile-oracle build or a --build-dir")
    made_by = "; ".join(sorted({made for *_, made in newest.values()}))
    return PoolVersion(str(path), made_by, {name: binary_identity(file) for name, file in binaries.items()})


def _listed(path: Path) -> PoolVersion:
    try:
        lines = read_bytes(path, _MOST_LIST_BYTES).decode("utf-8").splitlines()
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BuildError(f"{path} is not a list of kernels: it is not UTF-8 text") from None
    kernels: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if not name or name.startswith("#"):
            continue
        try:
            kernels[parse_kernel_name(name).name] = ""
        except KernelError as error:
            raise BuildError(f"{path}, line {number}: {error}") from None
    return PoolVersion(str(path), "names only", kernels)
