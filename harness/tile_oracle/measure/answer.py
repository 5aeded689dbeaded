"""Turns a worker's answer into a measurement."""

from __future__ import annotations

from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.protocol import Message
from tile_oracle.problem import Problem
from tile_oracle.target.device_state import DeviceState

_ANSWER_FIELDS = (
    *("status", "detail", "latency_ms", "latency_min_ms", "spread", "samples", "check", "check_points"),
    *("busy_ms", "facts", "precision", "sampling"),
)


def measurement_of(problem: Problem, kernel: Kernel, answer: Message) -> Measurement:
    """The measurement in a worker's answer."""
    values = {name: answer[name] for name in _ANSWER_FIELDS if name in answer}
    if "state" in answer:
        values["state"] = DeviceState(**answer["state"])
    return Measurement(problem, kernel, **values, sample_ms=tuple(answer.get("sample_ms", ())))
