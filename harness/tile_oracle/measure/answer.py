"""Turns a worker's answer into a measurement."""

from __future__ import annotations

from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.protocol import Message
from tile_oracle.problem import Problem
from tile_oracle.targets.device_state import DeviceState

_ANSWER_FIELDS = (
    *("status", "detail", "latency_ms", "latency_min_ms", "spread", "samples", "check", "check_points"),
    *("busy_ms", "check_ms", "facts", "precision", "sampling", "at_least_ms"),
)


def misbehaviour(answer: Message) -> tuple[str, str] | None:
    """Status and detail of a kernel that misbehaved in its worker, whatever it computed; None for others."""
    if answer["processes"]:
        return "crash", f"left {answer['processes']} processes running behind it"
    if answer["unfair"] and answer["status"] in ("ok", "noisy", "untimed"):
        return "wrong", "; ".join(answer["unfair"])
    return None


def has_spoilt_its_worker(answer: Message) -> bool:
    """Returns whether the next kernel needs a new worker."""
    return bool(answer.get("tainted") or answer["dirty"] or answer["unfair"] or answer["processes"])


def measurement_of(problem: Problem, kernel: Kernel, answer: Message) -> Measurement:
    """Returns the measurement in a worker's answer."""
    bad = misbehaviour(answer)
    if bad is not None:
        return Measurement(problem, kernel, *bad)
    values = {name: answer[name] for name in _ANSWER_FIELDS if name in answer}
    if answer["dirty"] and answer["status"] == "ok":
        values["detail"] = f"its worker was replaced ({', '.join(answer['dirty'])})"
    if "state" in answer:
        values["state"] = DeviceState(**answer["state"])
    return Measurement(problem, kernel, **values, sample_ms=tuple(answer.get("sample_ms", ())))
