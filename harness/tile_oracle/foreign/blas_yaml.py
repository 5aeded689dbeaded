"""Reads GEMMs from the YAML files of rocblas-bench and hipblaslt-bench (`--yaml`).

A file is a list of calls, or has such a list as `Tests`. Lists of values stand for all their combinations; a
list of tables (`matrix_size`, `transA_transB`, `arguments`, ...) gives several members at once; `function`
may give each function its precisions. `include:` inserts another file, as the programs' own reader does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path

from tile_oracle.errors import ProblemSetError
from tile_oracle.files.user_file import read_bytes
from tile_oracle.foreign.blas import has_calls, of_call
from tile_oracle.foreign.entry import Entry
from tile_oracle.foreign.list_file import ListFile, quoted
from tile_oracle.foreign.plain_yaml import Yaml, YamlTrouble, read_yaml
from tile_oracle.operations.gemm.blas_call import FUNCTIONS, READ

MAX_BYTES = 16 * 2**20
MAX_CALLS = 250_000
_MOST_INCLUDES = 32

_DOCUMENT = re.compile(r"(?:---|\.\.\.)\s*(?:#.*)?")
_RANGE = re.compile(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*(?:\.\.\s*(\d{1,9})\s*)?")
_MORE_THAN_LINES = re.compile(r"(?m)^(?:Tests|Definitions|include)\s*:|:\s*[\[*&]|\d\s*\.\.\s*\d")
"""What no log has: sections, lists of values, aliases, ranges."""

Call = dict[str, str]


def is_blas_yaml(path: Path, head: str) -> bool:
    """Returns whether a file is one of these, from its name and first lines. A log with a call a line is
    not."""
    if path.suffix.lower() not in (".yaml", ".yml"):
        return False
    return not has_calls(head) or _MORE_THAN_LINES.search(head) is not None


def yaml_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields each call; its source is the name of its test. Raises ProblemSetError."""
    try:
        documents = read_yaml(_included(listed))
        budget = _Budget(listed)
        for test in _tests(documents, listed):
            if isinstance(test, dict):
                name = test.get("name")
                source = name[:100] if isinstance(name, str) else ""
                for call in _calls(test, budget):
                    yield of_call(call, source, any_sizes=True)
    except YamlTrouble as error:
        raise listed.error(str(error), error.line) from None
    except RecursionError:
        raise listed.error("its aliases are nested too deep", 0) from None


# ---- files --------------------------------------------------------------------------------------


def _included(listed: ListFile) -> str:
    """Returns the text with all included files in their places. One document: anchors are known in all of
    it."""
    lines: list[str] = []
    seen: list[Path] = []
    size = 0

    def add(text: Iterator[str] | Sequence[str], folder: Path) -> None:
        nonlocal size
        for line in text:
            size += len(line) + 1
            if size > MAX_BYTES:
                raise listed.error(f"more than {MAX_BYTES >> 20} MiB with its included files", 0)
            name = _included_name(line)
            if name is None:
                lines.append("" if _DOCUMENT.fullmatch(line) else line)
                continue
            path = _beside(name, folder, listed.path.parent)
            if len(seen) >= _MOST_INCLUDES:
                raise listed.error(f"more than {_MOST_INCLUDES} files are included")
            seen.append(path)
            try:
                data = read_bytes(path, MAX_BYTES)
                inserted = data.decode("utf-8").splitlines()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is not a path to UTF-8 text"
                raise listed.error(f"include: {quoted(name)} cannot be read: {reason}") from None
            listed.sha256.update(data)
            add(inserted, path.parent)

    add(listed.lines(), listed.path.parent)
    return "\n".join(lines)


def _included_name(line: str) -> str | None:
    """Returns the file that a line includes; None for other lines."""
    word, colon, rest = line.partition(":")
    if not colon or word.strip() != "include":
        return None
    return rest.partition("#")[0].strip().strip("\"'")


def _beside(name: str, *folders: Path) -> Path:
    """Returns the file beside the one that includes it, or in the folder `include` next to that folder, as
    the libraries keep their common file."""
    places = [place for folder in folders for place in (folder / name, folder.parent / "include" / name)]
    try:
        return next((place for place in places if place.exists()), places[0])
    except (OSError, ValueError):  # an invalid path: reading it says so
        return places[0]


def _tests(documents: Sequence[Yaml], listed: ListFile) -> Iterator[Yaml]:
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("Tests"), list):
            document = document["Tests"]
        if not isinstance(document, list):
            raise listed.error("a list of calls, or a table with such a list as Tests, belongs here", 0)
        yield from document


# ---- combinations -------------------------------------------------------------------------------


class _Budget:
    """Counts steps: aliases make a few lines an endless list."""

    def __init__(self, listed: ListFile) -> None:
        self._left = MAX_CALLS
        self._listed = listed

    def take(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise self.error()

    def error(self) -> ProblemSetError:
        return self._listed.error(f"its lists make more than {MAX_CALLS:,} combinations: split the file", 0)


def _calls(test: dict[str, Yaml], budget: _Budget) -> Iterator[Call]:
    """Yields all combinations of a test's values."""
    choices = [_distinct(_choices(name, value, budget)) for name, value in test.items()]
    choices = [found for found in choices if found != [{}]]
    budget.take(prod(map(len, choices)))
    for chosen in product(*choices):
        call: Call = {}
        for part in chosen:
            call |= part
        yield call


def _choices(name: str, value: Yaml, budget: _Budget) -> Iterator[Call]:
    """Yields the members that each alternative of a member gives; {} for members that no problem depends
    on."""
    if isinstance(value, dict):
        if name in FUNCTIONS:
            for function, precisions in value.items():
                for call in _choices("precision", precisions, budget):
                    yield {"function": function} | call
        else:
            budget.take()
            yield from _calls(value, budget)
    elif isinstance(value, list):
        for item in value:
            budget.take()
            yield from _choices(name, item, budget)
    elif (member := READ.get(name)) is None:
        yield {}
    elif numbers := _RANGE.fullmatch(value):
        first, last, step = int(numbers[1]), int(numbers[2]), max(1, int(numbers[3] or 1))
        budget.take(len(range(first, last + 1, step)))
        for number in range(first, last + 1, step):
            yield {member: str(number)}
    else:
        yield {member: value}


def _distinct(calls: Iterator[Call]) -> list[Call]:
    return [dict(one) for one in dict.fromkeys(tuple(call.items()) for call in calls)]
