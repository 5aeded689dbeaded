"""Measurements as rows of the records, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tile_oracle.compiling.code_facts import CODE_FACTS, CodeFacts, code_facts
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.problem import Problem
from tile_oracle.record.schema import COLD, WARM
from tile_oracle.targets.base import DeviceInfo
from tile_oracle.targets.target import Target
from tile_oracle.version import __version__


def row_of(
    measurement: Measurement, target: Target, settings: SweepSettings, device: DeviceInfo | None
) -> dict[str, Any]:
    """Returns the row of a new measurement, without the run and the time. device: None if none was ever
    open."""
    row = {
        "harness_version": __version__,
        **measurement.as_row(),
        "target": target.name,
        "arch": target.arch,
        "implementation": target.owner(measurement.kernel).implementation,
        "device": device.name if device else "",
        "driver": device.driver if device else "",
        "seed": settings.seed,
        "cache": COLD if settings.cold_cache else WARM,
    }
    if measurement.status == "unsupported" and measurement.check == "none":
        return row  # refused by a rule: it may never have been built
    future = target.build(measurement.kernel)
    built = future.result() if future.done() and future.exception() is None else None
    if built is not None and built.toolchain:
        row["toolchain"] = built.toolchain
    if built is not None and (binary := built.binary) is not None:
        row |= {
            "flags": " ".join(binary.flags),
            "source_hash": binary.source_hash,
            "binary_bytes": binary.bytes,
            **_known_first(code_facts(binary.path, binary.arch), measurement.facts),
        }
    return row


def _known_first(facts: CodeFacts, of_driver: Mapping[str, int]) -> dict[str, int | None]:
    """Returns the binary's facts, completed with the driver's where the binary has none (PTX)."""
    found = {name: getattr(facts, name) for name in CODE_FACTS}
    return {name: of_driver.get(name) if value is None else value for name, value in found.items()}


def from_known(problem: Problem, kernel: Kernel, row: Mapping[str, Any]) -> Measurement:
    """Returns the measurement of a recorded row. row: at least tile_oracle.record.run.ALREADY_KNOWN."""

    def number(name: str) -> float:
        value = row.get(name)
        return math.nan if value is None else float(value)

    return Measurement(
        problem,
        kernel,
        row["status"],
        row.get("detail") or "",
        row["round"],
        number("latency_ms"),
        number("latency_min_ms"),
        number("spread"),
        int(row.get("samples") or 0),
        row.get("check") or "none",
        int(row.get("check_points") or 0),
        resumed=True,
        at_least_ms=number("at_least_ms"),
    )
