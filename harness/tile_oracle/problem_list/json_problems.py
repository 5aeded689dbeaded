"""Reads lists of problems in JSON: `{"problems": [{"M": 1024, "N": 1024, "K": 1024}, ...]}`, as tile_engine's
benchmarks of GEMMs do, or the list alone. Names are those of a table's columns, or m, n and k in lower case.
What stands beside the list in the document is said of every problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tile_oracle.foreign.list_file import ListFile

_PROBLEMS = "problems"


def json_rows(file: ListFile, check: Callable[[list[str]], None]) -> Iterator[dict[str, str]]:
    """Yields each problem as a row of text cells; errors then name its number. check: called with all names
    first. Raises ProblemSetError."""
    try:
        document = json.loads(file.text())
    except (ValueError, RecursionError) as error:
        raise file.error(f"not JSON: {error}", 0) from None
    beside = document if isinstance(document, dict) else {_PROBLEMS: document}
    listed = beside.get(_PROBLEMS)
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise file.error(
            "JSON, but no list of problems, which would be "
            '{"problems": [{"M": 1024, "N": 1024, "K": 1024}, ...]}',
            0,
        )
    said = {name: value for name, value in beside.items() if not isinstance(value, dict | list)}
    rows = [{_name(name): _cell(value) for name, value in (said | one).items()} for one in listed]
    file.shown += f":{_PROBLEMS}"
    file.header = list(dict.fromkeys(name for row in rows for name in row))
    file.line = 0
    check(file.header)
    for number, row in enumerate(rows, 1):
        file.line = number
        yield {name: row.get(name, "") for name in file.header}


def _name(name: str) -> str:
    return name.upper() if name in ("m", "n", "k") else name


def _cell(value: Any) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value)
