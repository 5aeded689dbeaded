"""Kernel Tuner's files: caches (schema 1.1.0 and before) and results in the T4 format (schema 1.0.0).

Both list configurations of tunable parameters, one file for one problem. A kernel is the values of its
fields; its name is written beside them, and read first. The problem is the cache's `problem_size`, which may
be text, or the parameter `problem`, or parameters with the names of its dimensions.

Times are milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tile_oracle.foreign.contract import UNITS_MS, status_named
from tile_oracle.foreign.entry import Entry, stated_entry
from tile_oracle.foreign.list_file import ListFile

_OF_TUNING = frozenset(
    f"{what}time" for what in ("", "compile_", "verification_", "benchmark_", "strategy_", "framework_")
) | {"times", "timestamp"}
"""What an entry of a cache has besides parameters and metrics."""
_CACHE = re.compile(r'"cache"\s*:\s*\{')
_KEY = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')


def cache_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every entry of a cache. One whose tuning has not ended, or whose file is cut, has its finished
    entries. Raises ProblemSetError."""
    document, cut = _cache(listed.text())
    size = document.get("problem_size")
    around: dict[str, Any] = {"device_name": document.get("device_name")}
    if isinstance(size, str) and "-" in size:
        around["problem"] = size
    for entry in document["cache"].values():
        time = entry.get("time")
        status = time[:100] if isinstance(time, str) else "ok"
        stated = {name: value for name, value in entry.items() if name not in _OF_TUNING}
        samples = _samples(entry.get("times"), time, status)
        yield stated_entry({**around, **stated}, samples, status=status, ended=entry.get("timestamp"))
    if cut:
        yield Entry(why="the file is cut or damaged inside an entry", text="what follows is not read")


def _cache(text: str) -> tuple[dict[str, Any], bool]:
    """Returns the document of a cache, and whether the file ends inside an entry. Raises ValueError."""
    try:
        return json.loads(text), False
    except ValueError:
        begin = _CACHE.search(text)
        if begin is None:
            raise
    document = json.loads(text[: begin.start()] + '"cache": {}}')
    decoder, place = json.JSONDecoder(), begin.end()
    while key := _KEY.match(text, place):
        try:
            name = json.loads(key[1])
            document["cache"][name], place = decoder.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            break
    return document, bool(text[place:].strip(" \t\r\n,}"))


def _samples(times: Any, mean: Any, status: str) -> Sequence[Any]:
    """Returns the timings of a result. One whose mean is none of theirs is no measurement."""
    if status_named(status) != "ok":
        return []
    samples = times if isinstance(times, list) and times else [mean]
    numbers = [one for one in samples if isinstance(one, int | float)]
    is_number = isinstance(mean, int | float) and not isinstance(mean, bool)
    if mean is not None and not (is_number and 0.99 * min(numbers) <= mean <= 1.01 * max(numbers)):
        return [None]
    return samples


def t4_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every result of the T4 format. Raises ProblemSetError."""
    for result in json.loads(listed.text())["results"]:
        measured = {str(one["name"]): one for one in result.get("measurements") or ()}
        status = str(result.get("invalidity"))[:100]
        time = measured.pop("time", {})
        factor = UNITS_MS.get(str(time.get("unit") or "ms").strip().lower())
        if factor is None:
            yield Entry(why="the unit of time is unknown", text=str(time.get("unit"))[:100])
            continue
        value = time.get("value")
        mean = factor * value if isinstance(value, int | float) else value
        stated = {**result["configuration"], **{name: one.get("value") for name, one in measured.items()}}
        stated |= {"correctness": result["correctness"]} if "correctness" in result else {}
        samples = _samples((result.get("times") or {}).get("runtimes"), mean, status)
        yield stated_entry(stated, samples, status=status, ended=result.get("timestamp"))
