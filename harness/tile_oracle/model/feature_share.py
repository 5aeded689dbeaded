"""Why a model prefers one kernel to another, as data."""

from __future__ import annotations

from dataclasses import dataclass


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
