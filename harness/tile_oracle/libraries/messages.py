"""What the parent asks the child that loads a library, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tile_oracle.libraries.offers import ProblemOffers


@dataclass(frozen=True)
class Question:
    """visible: value for CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, "" to keep the current one. runtime:
    path of libamdhip64, "" to let the loader find it. most: offers of a problem."""

    library: str
    path: str
    visible: str
    runtime: str
    most: int
    problems: list[dict[str, Any]]


@dataclass(frozen=True)
class About:
    """The first line: the library and the device, or why they cannot be opened."""

    version: str = ""
    device: str = ""
    driver: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Answer:
    """One problem's line."""

    problem: str
    offers: ProblemOffers = field(default_factory=ProblemOffers)
