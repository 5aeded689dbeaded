"""Fault campaign: misbehaving kernels, each measured among correct ones (tests/misbehaviour)."""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tools.faults.campaign import Campaign, Outcome, main

_CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(_CHECKOUT), str(_CHECKOUT / "tests" / "evil_kernels")]  # evil_target, as tests find it

from tests.misbehaviour.runner import lab  # noqa: E402
from tests.misbehaviour.tables import FAMILIES  # noqa: E402

_POSSIBLE = tuple(family for family in FAMILIES if family.possible_here)


def misbehave(count: int, seed: int) -> Outcome:
    """Measures one kernel of each family, or of `count` families drawn from the seed if count is smaller."""
    chosen = list(_POSSIBLE)
    if count < len(chosen):
        chosen = random.Random(seed).sample(chosen, count)
    statuses: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder), FAMILIES) as made:
        for family in chosen:
            outcome = made.measure(family)
            failures += [f"{family.group}, {family.name}: {line}" for line in outcome.broken(family)]
            statuses.update(f"ended {one.status}" for one in outcome.seen if one.family == family.name)
            statuses["innocent kernels"] += sum(one.family == "innocent" for one in outcome.seen)
    return Outcome(len(chosen), dict(sorted(statuses.items())), failures)


CAMPAIGN = Campaign(
    "misbehaviour",
    "a misbehaving kernel gets its status, affects no other kernel, and the session ends",
    len(_POSSIBLE),
    misbehave,
    divisible=False,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
