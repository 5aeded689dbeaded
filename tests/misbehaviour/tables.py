"""All families, for the tests and for `python -m tools.faults.misbehaviour`."""

from __future__ import annotations

from tests.misbehaviour.fairness import FAIRNESS
from tests.misbehaviour.families import Family
from tests.misbehaviour.messages import MESSAGES
from tests.misbehaviour.precision import PRECISION
from tests.misbehaviour.resources import RESOURCES
from tests.misbehaviour.saving import SAVING
from tests.misbehaviour.signals import SIGNALS
from tests.misbehaviour.state import STATE
from tests.misbehaviour.timing import TIMING
from tests.misbehaviour.watching import WATCHING

FAMILIES: tuple[Family, ...] = (
    *(*TIMING, *SAVING, *PRECISION, *STATE, *MESSAGES, *RESOURCES, *SIGNALS),
    *(*FAIRNESS, *WATCHING),
)
