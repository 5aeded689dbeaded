"""Every family: what the tests and `python -m tools.faults.misbehaviour` go through."""

from __future__ import annotations

from tests.misbehaviour.families import Family
from tests.misbehaviour.signals import SIGNALS

FAMILIES: tuple[Family, ...] = (*SIGNALS,)
