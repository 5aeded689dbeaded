"""Pickers by name: files, adapters to those of other makers, and what installed packages offer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.judge.picker import Picker
from tile_oracle.pickers.chosen import Chosen
from tile_oracle.pickers.of_records import file_of_picks
from tile_oracle.pickers.picker import Asked
from tile_oracle.pickers.table import picker_of_file
from tile_oracle.problem import Problem

ENTRY_POINTS = "tile_oracle.pickers"
_FILE = re.compile(r"(?P<path>.+\.(?:csv|log|json|jsonl|txt))(?::(?P<layout>[rc]{3}))?")
"""A word that names a file of picks, and the layout of one that does not state it."""
_OWN = {
    **{name: f"tile_oracle.pickers.{name}:picker" for name in ("nvmatmul", "origami")},
    **{name: f"tile_oracle.pickers.expert_files:{name}" for name in ("vllm", "sglang")},
}


def picker_names() -> tuple[str, ...]:
    """Returns the names of all pickers that can be asked for."""
    return (*_OWN, *_declared())


def _asked(name: str, arch: str) -> Asked | None:
    """Returns what a name means for an architecture; None for an unknown name. Raises ModelError for a picker
    that cannot be used here."""
    if name in _OWN:
        module, _, function = _OWN[name].partition(":")
        own: Asked = getattr(import_module(module), function)(arch)
        return own
    point = _declared().get(name)
    if point is None:
        return None
    where = f"entry point {name} = {point.value} of {ENTRY_POINTS}"
    try:
        found: Asked = point.load()()
    except HarnessError:
        raise
    except Exception as error:  # whatever the module does when it is imported
        raise ModelError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from None
    if missing := [part for part in ("name", "identity", "maps", "pick") if not hasattr(found, part)]:
        raise ModelError(f"{where} is no picker: it lacks {', '.join(missing)} (tile_oracle.pickers.picker)")
    return found


def file_of(word: str) -> Path | None:
    """Returns the file of picks that a word names, whether it exists or not; None for a word that names
    none."""
    named = _FILE.fullmatch(word)
    return Path(named["path"]).expanduser().resolve() if named else None


def picker_of(word: str, arch: str, problems: Sequence[Problem]) -> Picker | None:
    """Returns the picker of a name or a file, for these problems; None for what is neither. Raises
    ModelError."""
    named, path = _FILE.fullmatch(word), file_of(word)
    if named is None or path is None:
        asked = _asked(word, arch)
    elif not path.is_file():
        raise ModelError(f"{word}: there is no such file of picks")
    elif (asked := picker_of_file(path, arch, named["layout"] or "")) is None:
        return file_of_picks(path, problems)
    return None if asked is None else Chosen(asked.name, asked, arch, known=False)


def _declared() -> Mapping[str, EntryPoint]:
    found = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
    if taken := sorted(found.keys() & _OWN.keys()):
        raise ModelError(
            f"entry point {taken[0]} of {ENTRY_POINTS} has the name of a picker of tile-oracle: rename it"
        )
    return found
