"""Finds CK Tile's headers in the folder that the user named, and identifies their version."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.errors import BuildError
from tile_oracle.files.disk_errors import disk_errors_as

_PLACES = ("include", "projects/composablekernel/include", "composablekernel/include", "")
"""In a checkout of Composable Kernel or a ROCm install; in a checkout of all ROCm libraries; in an include
folder itself."""

_MOST_FILES = 20_000
_MOST_BYTES = 256 << 20
_SUFFIXES = frozenset((".hpp", ".h", ".inc", ".cuh"))
_VERSION_FILES = ("ck/version.h", "ck_tile/version.h", "../.info/version", "../../.info/version")
_NUMBER = re.compile(
    r"#\s*define\s+CK_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)|#\s*define\s+CK_COMMIT_ID\s+\"?(\w+)"
)
_CMAKE_VERSION = re.compile(r"^\s*set\s*\(\s*version\s+(\d+(?:\.\d+){1,3})\s*\)", re.M | re.I)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class CkTileHeaders:
    """folder: the folder that the user named. include: the folder to compile against, which holds ck_tile/.

    digest: sha256 over names and contents of all headers in ck_tile/. version: version and commit as far as
    the checkout states them, else "". count: number of headers.
    """

    folder: Path
    include: Path
    digest: str
    version: str
    count: int

    @property
    def identity(self) -> str:
        """CK Tile as recorded: "CK Tile 1.2.0 (headers 0123456789ab)"."""
        return f"CK Tile{f' {self.version}' if self.version else ''} (headers {self.digest[:12]})"

    def text(self, name: str) -> str:
        """Returns the text of a header, given by its path below the include folder; "" when it does not
        exist."""
        try:
            return (self.include / name).read_text("utf-8", "replace")
        except OSError:
            return ""


def find_headers(folder: Path) -> CkTileHeaders:
    """Finds the headers in a checkout of Composable Kernel, a ROCm install or an include folder.

    Raises BuildError when there are none or they cannot be read.
    """
    folder = folder.expanduser().absolute()
    for place in _PLACES:
        include = folder / place
        with disk_errors_as(BuildError, f"--ck-tile {folder} cannot be read"):
            there = (include / "ck_tile" / "core.hpp").is_file()
        if there:
            with disk_errors_as(BuildError, f"the headers in {include} cannot be read"):
                digest, count = _digest(include, _state(include))
            return CkTileHeaders(folder, include, digest, _version(folder, include), count)
    raise BuildError(
        f"--ck-tile {folder} holds no CK Tile: there is no include/ck_tile/core.hpp in it; name a checkout "
        "of Composable Kernel, or the folder of a ROCm install"
    )


def _headers(include: Path) -> list[Path]:
    found = sorted(path for path in (include / "ck_tile").rglob("*") if path.suffix in _SUFFIXES)
    if len(found) > _MOST_FILES:
        raise BuildError(f"{include / 'ck_tile'} holds too many headers to be CK Tile")
    return found


def _state(include: Path) -> str:
    """Returns the names, times and sizes of the headers: the key under which this process caches their
    digest."""
    stats = [(path, path.stat()) for path in _headers(include)]
    if sum(stat.st_size for _, stat in stats) > _MOST_BYTES:
        raise BuildError(f"{include / 'ck_tile'} holds too much to be CK Tile's headers")
    return "\n".join(f"{path} {stat.st_mtime_ns} {stat.st_size}" for path, stat in stats)


@lru_cache(maxsize=8)
def _digest(include: Path, _state: str) -> tuple[str, int]:
    total, files = hashlib.sha256(), _headers(include)
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(include).as_posix()}\0{content}\n".encode())
    return total.hexdigest(), len(files)


def _version(folder: Path, include: Path) -> str:
    """Returns the version from ck/version.h, ROCm's version file or CMakeLists.txt, and a git checkout's
    commit."""
    parts: list[str] = []
    for name in _VERSION_FILES:
        text = _short_text(include / name)
        numbers = {match[1]: match[2] for match in _NUMBER.finditer(text) if match[1]}
        commit = next((match[3] for match in _NUMBER.finditer(text) if match[3]), "")
        if "MAJOR" in numbers:
            parts.append(".".join(numbers.get(key, "0") for key in ("MAJOR", "MINOR", "PATCH")))
            if commit:
                parts.append(f"commit {commit[:12]}")
            break
        if name.startswith("..") and re.fullmatch(r"\d+\.\d+[\w.-]*", text.strip()):
            parts.append(f"of ROCm {text.strip()}")
            break
    cmake = _CMAKE_VERSION.search(_short_text(include.parent / "CMakeLists.txt"))
    if cmake is not None and not parts:
        parts.append(cmake[1])
    commit = _git_commit(folder)
    if commit:
        parts.append(f"commit {commit[:12]}")
    return ", ".join(dict.fromkeys(parts))


def _git_commit(folder: Path) -> str:
    """Returns the commit of HEAD, read from the files in .git; "" when the folder is not a git checkout."""
    place = folder / ".git"
    if place.is_file():
        pointed = _short_text(place).removeprefix("gitdir:").strip()
        place = folder / pointed if pointed else place
    head = _short_text(place / "HEAD").strip()
    if head.startswith("ref: "):
        name = head.removeprefix("ref: ")
        common = place / _short_text(place / "commondir").strip()
        loose = next((text for root in (place, common) if (text := _short_text(root / name).strip())), "")
        packed = re.search(
            rf"^([0-9a-f]{{40}}) {re.escape(name)}$", _short_text(common / "packed-refs"), re.M
        )
        head = loose or (packed[1] if packed else "")
    return head if _COMMIT.fullmatch(head) else ""


def _short_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4 << 20).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
