"""A double of amdsmi with the same functions; it records calls and returns what a test sets."""

from __future__ import annotations

from typing import Any

calls: list[tuple[object, ...]] = []
metrics: list[dict[str, Any]] = []


class AmdSmiLibraryException(Exception):
    """What the real one raises."""


def amdsmi_init() -> None:
    calls.append(("amdsmi_init",))


def amdsmi_get_processor_handle_from_bdf(bdf: str) -> str:
    calls.append(("amdsmi_get_processor_handle_from_bdf", bdf))
    return "handle"


def amdsmi_get_processor_handles() -> list[str]:
    calls.append(("amdsmi_get_processor_handles",))
    return ["handle"]


def amdsmi_get_gpu_metrics_info(handle: str) -> dict[str, Any]:
    calls.append(("amdsmi_get_gpu_metrics_info", handle))
    if not metrics:
        raise AmdSmiLibraryException("not supported")
    return metrics.pop(0)
