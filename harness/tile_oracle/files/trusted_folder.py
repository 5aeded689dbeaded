"""Who may change a folder from which code is loaded: only root and this user, as with ssh's StrictModes.

Other users can change a folder that belongs to one of them, that they may write, or that lies in a folder
where they can replace it: one that they may write and that has no sticky bit. A group counts as other users
unless it is this user's own or root's, which has their name and nobody else in it (the first is usual where
the umask is 002).
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from tile_oracle.errors import BuildError

TRUSTED = "TILE_ORACLE_TRUSTED"
"""The variable with folders, separated by colons, that are trusted with all below them, whoever may write."""


def check_trusted(folder: Path, what: str) -> None:
    """Raises BuildError if other users may change what lies in the folder (which need not exist yet).

    what: what is loaded from it, for the message.
    """
    whole = Path(os.path.realpath(folder))
    above = [*reversed(whole.parents)]
    _check(((place, place != whole) for place in (*above, whole)), whole, what)


def check_part_trusted(parts: Iterable[Path], folder: Path, what: str) -> None:
    """`check_trusted` of files and folders in a folder that was checked before."""
    _check(((part, False) for part in parts), folder, what)


def may_change(found: os.stat_result, *, only_add: bool = False) -> bool:
    """Returns whether other users may change a file or folder. only_add: those who may only add files,
    because of the sticky bit, do not count."""
    if found.st_uid not in (0, os.getuid()):
        return True
    if only_add and found.st_mode & stat.S_ISVTX:
        return False
    return bool(
        found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid))
    )


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it that are missing. Whatever the umask is, nobody but their owner may
    write them. Raises OSError."""
    try:
        folder.mkdir(mode=0o755, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(mode=0o755, exist_ok=True)


def _check(places: Iterable[tuple[Path, bool]], folder: Path, what: str) -> None:
    for place, only_add in places:
        try:
            found = place.stat()
        except OSError:
            return  # nothing is there to be loaded, or reading it says why not
        if may_change(found, only_add=only_add):
            if _is_named(folder):
                return
            raise BuildError(_refusal(place, found, folder, what))


def _refusal(place: Path, found: os.stat_result, folder: Path, what: str) -> str:
    foreign = found.st_uid not in (0, os.getuid())
    fix = f"chown -R {_user(os.getuid())} {place}" if foreign else f"chmod -R go-w {place}"
    owner, mode = _user(found.st_uid), stat.filemode(found.st_mode)
    return (
        f"{what} in {folder} are not used, since other users may change them: {place} belongs to {owner}, "
        f"mode {mode}. {fix}, or name another folder, or trust this one: {TRUSTED}={folder}"
    )


def _is_named(folder: Path) -> bool:
    named = (Path(os.path.realpath(one)) for one in os.environ.get(TRUSTED, "").split(":") if one)
    return any(folder.is_relative_to(one) for one in named)


@lru_cache
def _is_own_group(number: int) -> bool:
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name in ("root", user.pw_name) and set(group.gr_mem) <= {"root", user.pw_name}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
