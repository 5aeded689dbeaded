"""Kernel Tuner's files: caches (schema 1.1.0 and before) and results in the T4 format (schema 1.0.0).

Both list configurations of tunable parameters, one file for one problem. A kernel is the values of its
fields; its name is written beside them, and read first. The problem is the cache's `problem_size`, which may
be text, or the parameter `problem`, or parameters with the names of its dimensions.

Times are milliseconds. Files written here state 0 for what records do not have: the times of compilation,
verification, search and framework.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.foreign.contract import UNITS_MS
from tile_oracle.foreign.pairs import PairRows
from tile_oracle.kernel import kernel_from_row
from tile_oracle.record.final import final_measurements, records_op
from tile_oracle.terminal.progress_line import steps

CACHE_SCHEMA, T4_SCHEMA = "1.1.0", "1.0.0"

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
_AS_CACHE: Mapping[str, str] = {
    "unsupported": "InvalidConfig",
    "build_error": "CompilationFailedConfig",
    **dict.fromkeys(("wrong", "flaky", "crash", "timeout"), "RuntimeFailedConfig"),
}
_AS_T4: Mapping[str, str] = {status: word for word, status in _T4_STATUSES.items()} | {"flaky": "correctness"}
_OF_TUNING = frozenset(
    f"{what}time" for what in ("", "compile_", "verification_", "benchmark_", "strategy_", "framework_")
) | {"times", "timestamp"}
"""What an entry of a cache has besides parameters and metrics."""
_CACHE = re.compile(r'"cache"\s*:\s*\{')
_KEY = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
CUT = "cut"
"""Member of a cache's document, true if the file ends inside an entry."""
_UNKNOWN_TIME = "1970-01-01 00:00:00+00:00"


def read_text(text: str) -> PairRows | None:
    """The measurements in a text; None for text that is neither."""
    document = _document(text)
    if document is None:
        return None
    return _read_cache(document) if _is_cache(document) else _read_t4(document)


def _document(text: str) -> dict[str, Any] | None:
    """The document of a cache or of T4 results; None for other text. A cache whose tuning has not ended, or
    whose file is cut, has its finished entries; `CUT` is true if one is not finished."""
    if '"tune_params_keys"' not in text and '"configuration"' not in text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _cut_cache(text)
    return found if isinstance(found, dict) and (_is_cache(found) or _is_t4(found)) else None


def _cut_cache(text: str) -> dict[str, Any] | None:
    """What a cache holds before the place where its file ends."""
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
    """The timings of a result. One whose mean is none of theirs is no measurement."""
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


# ---- writing ------------------------------------------------------------------------------------


def kernel_tuner_files(records: pd.DataFrame, *, t4: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """(problem's id, document) of every problem: T4 results, or a cache. Pairs that are noisy or whose device
    was lost say nothing about their kernels and are left out. Raises RecordError."""
    final = final_measurements(records)
    final = final[final["status"].isin(["ok", *_AS_CACHE])]
    if final.empty:
        raise RecordError("no pair of these records has a result that Kernel Tuner's files can state")
    op = records_op(records)
    ok = records[records["status"] == "ok"]
    runtimes: dict[tuple[str, str], list[float]] = {}
    for problem, kernel, latency_ms in zip(ok["problem"], ok["kernel"], ok["latency_ms"], strict=True):
        runtimes.setdefault((str(problem), str(kernel)), []).append(float(latency_ms))
    distinct = final.drop_duplicates("kernel").to_dict("records")
    parameters = {row["kernel"]: _parameters({str(k): v for k, v in row.items()}, op) for row in distinct}
    stated = final[[name for name in _STATED if name in final]]
    by_problem = list(stated.groupby("problem", observed=True))
    for problem, rows in steps("writing a file for each problem", by_problem):
        listed = [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]
        entries = [(row, parameters[row["kernel"]]) for row in listed]
        yield str(problem), (_t4 if t4 else _cache)(str(problem), entries, runtimes)


_STATED = ("problem", "kernel", "op", "status", "latency_ms", "busy_ms", "time", "device")
"""What the files have of a record besides the kernel's parameters."""

Entries = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
Runtimes = Mapping[tuple[str, str], Sequence[float]]


def _parameters(row: Mapping[str, Any], op: str) -> dict[str, Any]:
    """The kernel's fields that are values of JSON."""
    fields = kernel_from_row(row, op).as_row()
    return {name: value for name, value in fields.items() if isinstance(value, str | int | float | bool)}


def _cache(problem: str, entries: Entries, runtimes: Runtimes) -> dict[str, Any]:
    keys = list(dict.fromkeys(name for _, parameters in entries for name in parameters))
    complete = [{name: parameters.get(name) for name in keys} for _, parameters in entries]
    if len({_key(one) for one in complete}) < len(complete):  # kernels that differ in their names alone
        keys.append("kernel")
        complete = [{**one, "kernel": row["kernel"]} for one, (row, _) in zip(complete, entries, strict=True)]
    cache = {}
    for (row, _), parameters in zip(entries, complete, strict=True):
        is_ok = row["status"] == "ok"
        cache[_key(parameters)] = {
            **parameters,
            "kernel": row["kernel"],
            "time": float(row["latency_ms"]) if is_ok else _AS_CACHE[row["status"]],
            **({"times": list(runtimes[row["problem"], row["kernel"]])} if is_ok else {}),
            **dict.fromkeys(("compile_time", "verification_time", "strategy_time", "framework_time"), 0),
            "benchmark_time": _busy_ms(row),
            "timestamp": _timestamp(row),
        }
    return {
        "schema_version": CACHE_SCHEMA,
        "device_name": str(entries[0][0].get("device") or "unknown"),
        "kernel_name": str(entries[0][0]["op"]),
        "problem_size": problem,
        "tune_params_keys": keys,
        "tune_params": {name: list(dict.fromkeys(one[name] for one in complete)) for name in keys},
        "objective": "time",
        "cache": cache,
    }


def _t4(problem: str, entries: Entries, runtimes: Runtimes) -> dict[str, Any]:
    results = []
    for row, parameters in entries:
        is_ok = row["status"] == "ok"
        measured = [("kernel", row["kernel"], ""), ("problem", problem, "")]
        times = dict.fromkeys(("compilation_time", "framework", "search_algorithm", "validation"), 0)
        results.append(
            {
                "timestamp": _timestamp(row),
                "configuration": dict(parameters),
                "times": {**times, "runtimes": list(runtimes[problem, row["kernel"]]) if is_ok else []},
                "invalidity": _AS_T4[row["status"]],
                "correctness": 0 if row["status"] in ("wrong", "flaky") else 1,
                "measurements": [
                    {"name": name, "value": value, "unit": unit}
                    for name, value, unit in (
                        *([("time", float(row["latency_ms"]), "ms")] if is_ok else []),
                        *measured,
                    )
                ],
                "objectives": ["time"],
            }
        )
    return {"results": results, "schema_version": T4_SCHEMA}


def _key(parameters: Mapping[str, Any]) -> str:
    return ",".join(str(value) for value in parameters.values())


def _busy_ms(row: Mapping[str, Any]) -> float:
    busy = row.get("busy_ms")
    return float(busy) if busy is not None and busy == busy else 0.0


def _timestamp(row: Mapping[str, Any]) -> str:
    time = row.get("time")
    return _UNKNOWN_TIME if time is None or pd.isna(time) else str(time)
