"""Reads YAML as texts, lists and tables: no tags, no types, no objects, within bounds.

Every scalar stays the text that the file has. An alias is the same object as its anchor, so a file whose
aliases repeat each other a billion times takes no memory; who walks over the result has to count his steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Yaml: TypeAlias = "str | list[Yaml] | dict[str, Yaml]"

MAX_DEPTH = 50
MAX_EVENTS = 5_000_000
_MERGE = "<<"


class YamlTrouble(ValueError):
    """What is wrong, in one line without the position. line: from 1, or 0."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(text: str) -> list[Yaml]:
    """Returns the documents of a text. Raises YamlTrouble."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Composer(yaml.parse(text, Loader=loader)).documents()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "it cannot be read"
        raise YamlTrouble(f"no YAML: {what}", mark.line + 1 if mark is not None else 0) from None
    except yaml.YAMLError as error:
        raise YamlTrouble(f"no YAML: {str(error).splitlines()[0]}") from None


class _Composer:
    """Makes values of the parser's events. Events, not nodes: the library composes nodes recursively, which
    ends the process for a deeply nested file."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, Yaml] = {}
        self._line = 0
        self._steps = 0

    def documents(self) -> list[Yaml]:
        found: list[Yaml] = []
        while True:
            event = self._next()
            kind = type(event).__name__
            if kind == "StreamEndEvent":
                return found
            if kind == "DocumentStartEvent":
                found.append(self._value(self._next(), 0))

    def _next(self) -> Any:
        event = next(self._events)
        self._line = event.start_mark.line + 1
        self._count(1)
        return event

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_EVENTS:
            raise YamlTrouble(f"more than {MAX_EVENTS:,} values", self._line)

    def _value(self, event: Any, depth: int) -> Yaml:
        if depth > MAX_DEPTH:
            raise YamlTrouble(f"nested more than {MAX_DEPTH} levels deep", self._line)
        kind = type(event).__name__
        if kind == "AliasEvent":
            if event.anchor not in self._anchors:
                raise YamlTrouble(
                    f"*{event.anchor[:60]} has no anchor: a file to include may be missing", self._line
                )
            return self._anchors[event.anchor]
        found: Yaml
        if kind == "ScalarEvent":
            found = str(event.value)
        elif kind == "SequenceStartEvent":
            found = []
            while type(item := self._next()).__name__ != "SequenceEndEvent":
                found.append(self._value(item, depth + 1))
        else:
            found = {}
            while type(item := self._next()).__name__ != "MappingEndEvent":
                key = self._value(item, depth + 1)
                value = self._value(self._next(), depth + 1)
                if key == _MERGE and getattr(item, "implicit", (False,))[0]:  # in quotes it is a text
                    self._merge(found, value)
                elif isinstance(key, str):
                    found[key] = value
        if event.anchor is not None:  # not before: no value holds itself
            self._anchors[event.anchor] = found
        return found

    def _merge(self, into: dict[str, Yaml], value: Yaml) -> None:
        """The members of one or several tables that the table itself does not have."""
        for table in value if isinstance(value, list) else [value]:
            if not isinstance(table, dict):
                raise YamlTrouble(f"{_MERGE} merges a value that is no table", self._line)
            self._count(len(table))
            for name, member in table.items():
                into.setdefault(name, member)
