"""Kernel Tuner's files: caches (schema 1.1.0 and before) and results in the T4 format (schema 1.0.0).

Both list configurations of tunable parameters, one file for one problem. A kernel is the values of its
fields; its name is written beside them, and read first. The problem is the cache's `problem_size`, which may
be text, or the parameter `problem`, or parameters with the names of its dimensions.

Times are milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tile_oracle.foreign.contract import UNITS_MS
from tile_oracle.foreign.pairs import PairRows

_CACHE_FAILURES: Mapping[str, str] = {
    "InvalidConfig": "unsupported",
    "CompilationFailedConfig": "build_error",
    "RuntimeFailedConfig": "crash",
}
_T4_STATUSES: Mapping[str, str] = {
    "correct": "ok",
    "constraints": "unsupported",
    "compile": "build_error",
    "runtime": "crash",
    "timeout": "timeout",
    "correctness": "wrong",
}
_OF_TUNING = frozenset(
    f"{what}time" for what in ("", "compile_", "verification_", "benchmark_", "strategy_", "framework_")
) | {"times", "timestamp"}
"""What an entry of a cache has besides parameters and metrics."""
_CACHE = re.compile(r'"cache"\s*:\s*\{')
_KEY = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
CUT = "cut"
"""Member of a cache's document, true if the file ends inside an entry."""


def read_text(text: str) -> PairRows | None:
    """Returns the measurements in a text; None for text that is neither."""
    document = _document(text)
    if document is None:
        return None
    return _read_cache(document) if _is_cache(document) else _read_t4(document)


def _document(text: str) -> dict[str, Any] | None:
    """Returns the document of a cache or of T4 results; None for other text. A cache whose tuning has not
    ended, or whose file is cut, has its finished entries; `CUT` is true if one is not finished."""
    if '"tune_params_keys"' not in text and '"configuration"' not in text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _cut_cache(text)
    return found if isinstance(found, dict) and (_is_cache(found) or _is_t4(found)) else None


def _cut_cache(text: str) -> dict[str, Any] | None:
    """Returns what a cache holds before the place where its file ends."""
    begin = _CACHE.search(text)
    try:
        found = json.loads(text[: begin.start()] + '"cache": {}}') if begin else None
    except (ValueError, RecursionError):
        return None
    if begin is None or not isinstance(found, dict) or not _is_cache(found):
        return None
    decoder, place = json.JSONDecoder(), begin.end()
    while key := _KEY.match(text, place):
        try:
            name = json.loads(key[1])
            found["cache"][name], place = decoder.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            break
    return found | {CUT: bool(text[place:].strip(" \t\r\n,}"))}


def _is_cache(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("cache"), dict) and isinstance(document.get("tune_params_keys"), list)


def _is_t4(document: Mapping[str, Any]) -> bool:
    results = document.get("results")
    return isinstance(results, list) and all(
        isinstance(one, dict) and isinstance(one.get("configuration"), dict) for one in results
    )


def _read_cache(document: Mapping[str, Any]) -> PairRows:
    found = PairRows()
    size = document.get("problem_size")
    around: dict[str, Any] = {"device_name": document.get("device_name")}
    if isinstance(size, str) and "-" in size:
        around["problem"] = size
    for key, entry in document["cache"].items():
        if not isinstance(entry, dict):
            found.refused.append(("an entry is not an object", str(key)[:100]))
            continue
        time = entry.get("time")
        status = _CACHE_FAILURES.get(time, "") if isinstance(time, str) else "ok"
        if not status:
            found.refused.append(("unknown failure", str(time)[:100]))
            continue
        stated = {name: value for name, value in entry.items() if name not in _OF_TUNING}
        found.add({**around, **stated}, *_samples(entry.get("times"), time, status), **_when(entry, status))
    if document.get(CUT):
        found.refused.append(("the file is cut or damaged inside an entry", "what follows is not read"))
    return found


def _samples(times: Any, mean: Any, status: str) -> tuple[Sequence[Any]]:
    """Returns the timings of a result. One whose mean is none of theirs is no measurement."""
    if status != "ok":
        return ([],)
    if isinstance(mean, str | bool):
        return ([None],)
    samples = times if isinstance(times, list) and times else [mean]
    numbers = [one for one in samples if isinstance(one, int | float)]
    if isinstance(mean, int | float) and numbers and not 0.99 * min(numbers) <= mean <= 1.01 * max(numbers):
        return ([None],)
    return (samples,)


def _when(entry: Mapping[str, Any], status: str) -> dict[str, Any]:
    time = entry.get("timestamp")
    return {"status": status, "ended": time if isinstance(time, str) else None}


def _read_t4(document: Mapping[str, Any]) -> PairRows:
    found = PairRows()
    for result in document["results"]:
        measured = {
            str(one.get("name")): one for one in result.get("measurements") or () if isinstance(one, dict)
        }
        status = _T4_STATUSES.get(str(result.get("invalidity")), "")
        if not status:
            found.refused.append(("unknown invalidity", str(result.get("invalidity"))[:100]))
            continue
        time = measured.pop("time", {})
        factor = UNITS_MS.get(str(time.get("unit") or "ms").strip().lower())
        if factor is None:
            found.refused.append(("the unit of time is unknown", str(time.get("unit"))[:100]))
            continue
        value = time.get("value")
        mean = factor * value if isinstance(value, int | float) else value
        times = result.get("times")
        runtimes = times.get("runtimes") if isinstance(times, dict) else None
        stated = {**result["configuration"], **{name: one.get("value") for name, one in measured.items()}}
        stated |= {"correctness": result["correctness"]} if "correctness" in result else {}
        found.add(stated, *_samples(runtimes, mean, status), **_when(result, status))
    return found
