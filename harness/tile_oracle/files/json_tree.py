"""Typed access to JSON data files, with errors that name the position.

Errors are RuleError, one line: `rules/mine.json: blocks[0].tiles[3].tile: '64x' is not ...`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tile_oracle.errors import RuleError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.user_file import open_regular
from tile_oracle.terminal.did_you_mean import did_you_mean

_T = TypeVar("_T")

MAX_FILE_BYTES = 1 << 20
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class JsonTree:
    """A value of a JSON document and its path (`file: blocks[0].tiles`). Accessors raise RuleError."""

    value: Any
    file: str
    path: str = ""

    @classmethod
    def read(cls, path: Path, most_bytes: int = MAX_FILE_BYTES) -> JsonTree:
        """Reads the document of a file of at most `most_bytes`. Raises RuleError."""
        name = path.name
        with disk_errors_as(RuleError, f"{shown(name)} cannot be read"), open_regular(path) as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise RuleError(f"{shown(name)} is larger than {most_bytes:,} bytes: not a file of rules")
        try:
            value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
        except UnicodeDecodeError as error:
            raise RuleError(f"{shown(name)} is not UTF-8 text (byte {error.start:,})") from None
        except json.JSONDecodeError as error:
            raise RuleError(
                f"{shown(name)} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
            ) from None
        except RecursionError:
            raise RuleError(f"{shown(name)} is nested too deeply for a file of rules") from None
        except ValueError as error:
            raise RuleError(f"{shown(name)} is not usable JSON: {error}") from None
        return cls(value, shown(name)[1:-1])

    def error(self, what: str) -> RuleError:
        """Returns a RuleError about this value."""
        return RuleError(f"{self.file}: {self.path + ': ' if self.path else ''}{what}")

    # ---- objects ----------------------------------------------------------------------------

    def members(self) -> dict[str, JsonTree]:
        """Returns the members of an object, in the order of the file."""
        if not isinstance(self.value, dict):
            raise self.error(f"{self} is not an object {{...}}")
        dot = "." if self.path else ""
        return {
            key: JsonTree(value, self.file, f"{self.path}{dot}{shown(key)[1:-1]}")
            for key, value in self.value.items()
        }

    def known_members(self, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, JsonTree]:
        """Returns the members of an object. It must have all `required` keys and no unknown one."""
        members = self.members()
        required = tuple(required)
        known = (*required, *optional)
        for key in members:
            if key not in known:
                hint = did_you_mean(key, known, f"known keys: {', '.join(known)}")
                raise self.error(f"unknown key {shown(key)}; {hint}")
        for key in required:
            if key not in members:
                raise self.error(f"the key {key!r} is missing")
        return members

    # ---- lists ------------------------------------------------------------------------------

    def items(self) -> Iterator[JsonTree]:
        """Returns the items of a list."""
        if not isinstance(self.value, list):
            raise self.error(f"{self} is not a list [...]")
        return (JsonTree(v, self.file, f"{self.path}[{i}]") for i, v in enumerate(self.value))

    def texts(self, words: Iterable[str] | None = None) -> tuple[str, ...]:
        """Returns a list of distinct strings; each is one of `words` if given."""
        return self._distinct(tuple(item.text(words) for item in self.items()))

    def integers(self, least: int = 0) -> tuple[int, ...]:
        """Returns a list of distinct integers, each at least `least`."""
        return self._distinct(tuple(item.integer(least) for item in self.items()))

    def flags(self) -> tuple[bool, ...]:
        """Returns a list of distinct booleans."""
        return self._distinct(tuple(item.flag() for item in self.items()))

    def _distinct(self, values: tuple[_T, ...]) -> tuple[_T, ...]:
        seen = set()
        for value in values:
            if value in seen:
                raise self.error(f"{JsonTree(value, self.file)} is listed twice")
            seen.add(value)
        return values

    # ---- leaves -----------------------------------------------------------------------------

    def text(self, words: Iterable[str] | None = None) -> str:
        """Returns a string; one of `words` if given."""
        if not isinstance(self.value, str):
            raise self.error(f"{self} is not a string")
        if words is not None:
            words = tuple(words)
            if self.value not in words:
                hint = did_you_mean(self.value, words)
                raise self.error("; ".join(filter(None, (f"{self} is not one of {', '.join(words)}", hint))))
        return self.value

    def integer(self, least: int = 0) -> int:
        """Returns an integer that is at least `least`."""
        if type(self.value) is not int or not least <= self.value <= 1 << 40:
            raise self.error(f"{self} is not an integer from {least}")
        return self.value

    def flag(self) -> bool:
        """True or false."""
        if type(self.value) is not bool:
            raise self.error(f"{self} is not true or false")
        return self.value

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return shown(self.value)
        if isinstance(self.value, dict | list):
            return "this " + ("object" if isinstance(self.value, dict) else "list")
        return json.dumps(self.value)[:_SHOWN_CHARACTERS]


def shown(text: str) -> str:
    """Untrusted text as shown in messages: quoted, on one line, shortened."""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[: _SHOWN_CHARACTERS - 3] + "..."
    return repr(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {shown(key)} appears twice in one object")
        members[key] = value
    return members


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")
