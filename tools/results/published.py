"""Published metrics of the models that pick CK Tile's grouped convolutions on gfx950, unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SOURCE = "ROCm/rocm-libraries, pull request 6327"
HARDWARE = "gfx950"


@dataclass(frozen=True)
class Published:
    """Metrics of one published model.

    measurements, problems: size of its training data. mean, median, p10 (efficiency), top_1, top_5: percent
    of the validation problems, None where not published. note: a remark shown with the metrics.
    """

    measurements: int
    problems: int
    mean: float
    median: float
    p10: float
    top_1: float | None = None
    top_5: float | None = None
    note: str = ""


PUBLISHED: Mapping[str, Published] = {
    "forward": Published(48_845, 1_372, 93.05, 96.8, 79.9),
    "bwd_data": Published(18_773, 891, 93.8, 96.5, 82.9, 25.2, note="top-1 of 147 problems"),
    "bwd_weight": Published(34_900, 1_508, 96.1, 99.2, 89.4, 32.7, note="top-1 of 156 problems"),
}
"""Direction -> metrics; all bf16."""
