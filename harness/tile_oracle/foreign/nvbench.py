"""NVBench's JSON output (format 1.0.0, `--json`): states of benchmarks with axis values and summaries.

The kernel is an axis called kernel, or the benchmark's name; the problem is an axis called problem, or axes
with the names of its dimensions. Times are the means of the cold measurement, in which NVBench clears the L2
cache before each run; without one, those of the batch measurement.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tile_oracle.foreign.contract import number_of
from tile_oracle.foreign.pairs import PairRows

_IQR_OF_SIGMA = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


def read_text(text: str) -> PairRows | None:
    """Returns the measurements of all states; None for text that is no such output. Skipped states are
    unsupported pairs."""
    document = _document(text)
    return None if document is None else _read(document)


def _document(text: str) -> dict[str, Any] | None:
    """Returns the document of NVBench's output; None for other text."""
    if '"benchmarks"' not in text or '"states"' not in text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("benchmarks"), list):
        return None
    return found if any(isinstance(_states(one), list) for one in found["benchmarks"]) else None


def _read(document: Mapping[str, Any]) -> PairRows:
    found = PairRows()
    devices = {
        str(one.get("id")): one.get("name") for one in document.get("devices") or () if isinstance(one, dict)
    }
    for benchmark in document["benchmarks"]:
        for state in _states(benchmark) or ():
            if isinstance(state, dict):
                number = str(state.get("device", ""))
                _add(found, str(benchmark.get("name", "")), state, str(devices.get(number) or number))
    return found


def _states(benchmark: Any) -> Any:
    return benchmark.get("states") if isinstance(benchmark, dict) else None


def _add(found: PairRows, name: str, state: Mapping[str, Any], device: str) -> None:
    axes = {
        str(one.get("name")): _axis_value(one)
        for one in state.get("axis_values") or ()
        if isinstance(one, dict)
    }
    stated = {**axes, **{key.lower(): axes[key] for key in axes if key.lower() in ("kernel", "problem")}}
    stated = {"kernel": name, "device": device, **stated}
    if state.get("is_skipped"):
        found.add(stated, [], status="unsupported", detail=str(state.get("skip_reason") or "")[:200])
        return
    summaries = {str(one.get("tag")): one for one in state.get("summaries") or () if isinstance(one, dict)}
    kind = "cold" if "nv/cold/time/gpu/mean" in summaries else "batch"
    mean, least, most, deviation = (
        _value(summaries, f"nv/{kind}/time/gpu/{what}") for what in ("mean", "min", "max", "stdev/relative")
    )
    count = _value(summaries, f"nv/{kind}/sample_size")
    if deviation is not None and not math.isfinite(deviation):
        deviation = None if count == 1 else math.inf  # one sample has none
    found.add(
        stated,
        [None if mean is None else 1000.0 * mean],
        spread=None if deviation is None else _IQR_OF_SIGMA * deviation,
        samples=count,
        latency_min_ms=None if least is None else 1000.0 * least,
        latency_max_ms=None if most is None else 1000.0 * most,
        cache="cold" if kind == "cold" else "warm",
    )


def _axis_value(axis: Mapping[str, Any]) -> Any:
    value = axis.get("value", axis.get("input_string"))
    if isinstance(value, str) and axis.get("type") == "int64":
        try:
            return int(value)
        except ValueError:
            return value
    return value


def _value(summaries: Mapping[str, Mapping[str, Any]], tag: str) -> float | None:
    """Returns a summary's number, which the file states as text."""
    for entry in summaries.get(tag, {}).get("data") or ():
        if isinstance(entry, dict) and entry.get("name") == "value":
            return number_of(entry.get("value"))
    return None
