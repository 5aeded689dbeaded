"""Why a model prefers one kernel to another, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FeatureShare:
    """One feature: its value for the pick and for the other kernel, None where it has none, and what it adds
    to the pick's advantage."""

    name: str
    pick: float | None
    other: float | None
    advantage: float


@dataclass(frozen=True)
class PickReason:
    """advantage: ln(predicted time of the other kernel / of the pick); of scores without a unit, their
    difference. features: those with the largest part of it, largest first; the others make up the rest."""

    advantage: float
    features: tuple[FeatureShare, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        rows = [[one.name, one.pick, one.other, one.advantage] for one in self.features]
        return {"advantage": self.advantage, "features": rows}

    @classmethod
    def from_dict(cls, value: Any) -> PickReason | None:
        """The inverse of `to_dict`; None for anything else."""
        try:
            features = tuple(
                FeatureShare(str(name), _number(pick), _number(other), float(share))
                for name, pick, other, share in value["features"]
            )
            advantage = float(value["advantage"])
        except (KeyError, TypeError, ValueError):
            return None
        shares = (advantage, *(one.advantage for one in features))
        return cls(advantage, features) if all(map(math.isfinite, shares)) else None


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(float(value)) else None
