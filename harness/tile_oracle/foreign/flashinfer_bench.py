"""Traces of flashinfer-bench: JSON lines, one measurement of a solution each, of GEMMs and RMS norms.

    {"definition": "gemm_n128_k2048", "solution": "...", "workload": {"axes": {"M": 16}}, "evaluation": ...}

A trace names its definition, which is looked for as `definitions/**/NAME.json` beside the file and above it.
A definition's A is [M, K]; its B is [N, K] or [K, N]. An RMS norm's inputs are [rows, columns] and [columns].
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tile_oracle.foreign.entry import Entry, entry_of, gemm_entry
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.operations.gemm.problem import RESULT_DTYPES
from tile_oracle.problem.dtype_words import dtype_named

_MOST_FOLDERS = 4
_LAYOUTS: Mapping[tuple[tuple[str, ...], ...], str] = {
    (("M", "K"), ("N", "K")): "rcr", (("M", "K"), ("K", "N")): "rrr",
}  # fmt: skip


def trace_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every trace. Raises ProblemSetError for a line that is no JSON."""
    definitions: dict[str, Mapping[str, Any] | None] = {}
    for line in listed.lines():
        if not line.strip():
            continue
        trace = json.loads(line)
        name, axes = str(trace["definition"]), dict(trace["workload"]["axes"])
        if name not in definitions:
            definitions[name] = _definition(listed.path, name)
        yield _entry(trace, definitions[name], axes, line[:300])


def _definition(path: Path, name: str) -> Mapping[str, Any] | None:
    if not re.fullmatch(r"[\w.-]+", name):
        return None
    for folder in list(path.absolute().parents)[:_MOST_FOLDERS]:
        for file in sorted((folder / "definitions").glob(f"**/{name}.json")):
            with suppress(OSError, ValueError):
                found = json.loads(file.read_text("utf-8"))
                return found if isinstance(found, dict) else None
            return None
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
    op, shaped = str(definition.get("op_type")), [tuple(shape) for shape in shapes]
    layout = _LAYOUTS.get(tuple(shaped)) if op == "gemm" else None
    is_norm = op == "rmsnorm" and [len(one) for one in shaped] == [2, 1] and shaped[0][1:] == shaped[1]
    if len(set(types)) != 1 or (layout is None and not is_norm):
        inputs = ", ".join(map("{} {}".format, definition["inputs"], shapes))
        why = f"{trace['definition']} is {op} of {inputs}: only plain GEMMs and RMS norms"
        return Entry(why=why, text=text)
    evaluation = trace.get("evaluation") or {}
    performance, correctness = (evaluation.get(name) or {} for name in ("performance", "correctness"))
    error = correctness.get("max_relative_error")
    solution = str(trace.get("solution") or "")
    kernel: tuple[str, str, dict[str, Any]] = ("flashinfer", re.sub(r"\W", "_", solution), {})
    further: dict[str, Any] = dict(  # noqa: C408
        times_ms=[performance.get("latency_ms")] if performance else [],
        figures={"status": evaluation.get("status") or "none stated", "ended": evaluation.get("timestamp")},
        stated={
            "device_name": str((evaluation.get("environment") or {}).get("hardware", "")).replace("_", " "),
            **({} if error is None else {"max_rel": str(error)}),
        },
        more=() if result == RESULT_DTYPES.get(types[0]) else (f"a result of {result}",),
        source=solution,
        text=text,
    )
    if layout is not None:
        return gemm_entry((types[0], layout, *(str(sizes.get(name)) for name in "MNK")), kernel, **further)
    extents = {ours: sizes[name] for ours, name in zip(("rows", "columns"), shaped[0], strict=True)}
    return entry_of("rms_norm", {"dtype": types[0], **extents}, kernel, **further)
