"""Traces of flashinfer-bench: JSON lines, one measurement of a solution each, and definitions of GEMMs.

    {"definition": "gemm_n128_k2048", "solution": "...", "workload": {"axes": {"M": 16}}, "evaluation": ...}

A trace names its definition, which is looked for as `definitions/**/NAME.json` beside the file and above it.
A definition's A is [M, K]; its B is [N, K] or [K, N].
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tile_oracle.foreign.entry import Entry, gemm_entry
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.operations.gemm.problem import RESULT_DTYPES
from tile_oracle.problem.dtype_words import dtype_named

_STATUSES = {
    "PASSED": "ok", "INCORRECT_SHAPE": "wrong", "INCORRECT_NUMERICAL": "wrong", "INCORRECT_DTYPE": "wrong",
    "RUNTIME_ERROR": "crash", "COMPILE_ERROR": "build_error", "TIMEOUT": "timeout",
}  # fmt: skip
_MOST_FOLDERS = 4


def trace_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every trace. Raises ProblemSetError for a line that is no JSON."""
    definitions: dict[str, Mapping[str, Any] | None] = {}
    for line in listed.lines():
        if not line.strip():
            continue
        try:
            trace = json.loads(line)
            name, axes = str(trace["definition"]), dict(trace["workload"]["axes"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise listed.error(f"not a trace of flashinfer-bench: {error}") from None
        if name not in definitions:
            definitions[name] = _definition(listed.path, name)
        yield _entry(trace, definitions[name], axes, line[:300])


def _definition(path: Path, name: str) -> Mapping[str, Any] | None:
    if not re.fullmatch(r"[\w.-]+", name):
        return None
    for folder in list(path.absolute().parents)[:_MOST_FOLDERS]:
        for file in sorted((folder / "definitions").glob(f"**/{name}.json")):
            try:
                found = json.loads(file.read_text("utf-8"))
            except (OSError, ValueError):
                return None
            return found if isinstance(found, dict) else None
    return None


def _entry(
    trace: Mapping[str, Any], definition: Mapping[str, Any] | None, axes: Mapping[str, Any], text: str
) -> Entry:
    if definition is None:
        return Entry(why=f"definitions/**/{trace['definition']}.json is not beside it", text=text)
    try:
        sizes = {name: one.get("value", axes.get(name)) for name, one in definition["axes"].items()}
        shapes = [one["shape"] for one in definition["inputs"].values()]
        types = [dtype_named(one["dtype"]) for one in definition["inputs"].values()]
        (result,) = (dtype_named(one["dtype"]) for one in definition["outputs"].values())
    except (KeyError, TypeError, ValueError, AttributeError):
        return Entry(why="its definition cannot be read", text=text)
    layouts = {(("M", "K"), ("N", "K")): "rcr", (("M", "K"), ("K", "N")): "rrr"}
    layout = layouts.get((*map(tuple, shapes),)) if len(shapes) == 2 else None  # type: ignore[arg-type]
    if definition.get("op_type") != "gemm" or layout is None or len(set(types)) != 1:
        return Entry(why=f"{definition.get('op_type')} with {len(shapes)} inputs is not a GEMM", text=text)
    evaluation = trace.get("evaluation") or {}
    performance, correctness = (evaluation.get(name) or {} for name in ("performance", "correctness"))
    status = str(evaluation.get("status", ""))
    error = correctness.get("max_relative_error")
    return gemm_entry(
        (types[0], layout, *(str(sizes.get(name)) for name in "MNK")),
        kernel=("flashinfer", re.sub(r"\W", "_", str(trace.get("solution") or "")), {}),
        times_ms=[performance.get("latency_ms")] if performance else [],
        figures={
            "status": _STATUSES.get(status, status or "none stated"),
            "ended": evaluation.get("timestamp"),
        },
        stated={
            "device_name": str((evaluation.get("environment") or {}).get("hardware", "")).replace("_", " "),
            **({} if error is None else {"max_rel": str(error)}),
        },
        more=() if result == RESULT_DTYPES.get(types[0]) else (f"a result of {result}",),
        source=str(trace.get("solution") or ""),
        text=text,
    )
