"""NVBench's JSON output (format 1.0.0, `--json`): states of benchmarks with axis values and summaries.

The kernel is an axis called kernel, or the benchmark's name; the problem is an axis called problem, or axes
with the names of its dimensions. Times are the means of the cold measurement, in which NVBench clears the L2
cache before each run; without one, those of the batch measurement.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tile_oracle.foreign.contract import number_of
from tile_oracle.foreign.entry import Entry, stated_entry
from tile_oracle.foreign.list_file import ListFile

_IQR_OF_SIGMA = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


def state_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields all states. Skipped ones are unsupported pairs. Raises ProblemSetError."""
    document = json.loads(listed.text())
    devices = {str(one["id"]): one.get("name") for one in document.get("devices") or ()}
    for benchmark in document["benchmarks"]:
        for state in benchmark.get("states") or ():
            number = str(state.get("device", ""))
            yield _entry(str(benchmark.get("name", "")), state, str(devices.get(number) or number))


def _entry(name: str, state: Mapping[str, Any], device: str) -> Entry:
    axes = {str(one["name"]): _axis_value(one) for one in state.get("axis_values") or ()}
    stated = {**axes, **{key.lower(): axes[key] for key in axes if key.lower() in ("kernel", "problem")}}
    stated = {"kernel": name, "device": device, **stated}
    if state.get("is_skipped"):
        why = str(state.get("skip_reason") or "")[:200]
        return stated_entry(stated, [], status="unsupported", detail=why)
    summaries = {str(one["tag"]): one for one in state.get("summaries") or ()}
    kind = "cold" if "nv/cold/time/gpu/mean" in summaries else "batch"
    mean, least, most, deviation = (
        _value(summaries, f"nv/{kind}/time/gpu/{what}") for what in ("mean", "min", "max", "stdev/relative")
    )
    count = _value(summaries, f"nv/{kind}/sample_size")
    if deviation is not None and not math.isfinite(deviation):
        deviation = None if count == 1 else math.inf  # one sample has none
    return stated_entry(
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
    return int(value) if axis.get("type") == "int64" and value is not None else value


def _value(summaries: Mapping[str, Mapping[str, Any]], tag: str) -> float | None:
    """Returns a summary's number, which the file states as text."""
    data = summaries.get(tag, {}).get("data") or ()
    return next((number_of(one.get("value")) for one in data if one.get("name") == "value"), None)
