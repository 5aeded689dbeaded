"""Shared by all fault campaigns: options, the table of counts and the exit status."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

PASSED, FAILED = 0, 1
DEFAULT_SEED = 20260


@dataclass(frozen=True)
class Outcome:
    """The result of a campaign.

    faults: number of injected faults. counts: outcome -> number, in display order. failures: one line per
    broken promise; a campaign passes if there are none.
    """

    faults: int
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[str] = ()


@dataclass(frozen=True)
class Campaign:
    """One kind of fault.

    name: the module's name. promise: what must hold, in one line. full_count: number of faults of a full run.
    run: takes the number of faults and a seed; deterministic in its choice of faults.
    """

    name: str
    promise: str
    full_count: int
    run: Callable[[int, int], Outcome]


def main(campaign: Campaign, arguments: Sequence[str] | None = None) -> int:
    """The command line of one campaign: runs it, prints its table, returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.faults.{campaign.name}", description=campaign.promise
    )
    parser.add_argument("--count", type=int, default=campaign.full_count, help="faults to inject")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the outcome to this file")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error("--count must be 1 or more")
    begun = time.monotonic()
    outcome = campaign.run(options.count, options.seed)
    seconds = time.monotonic() - begun
    for line in report(campaign, outcome, seconds):
        print(line)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(outcome) | {"seconds": seconds}))
    return exit_status(outcome)


def exit_status(outcome: Outcome) -> int:
    """PASSED or FAILED. A campaign that injected no fault has tested nothing, so it fails."""
    return PASSED if outcome.faults and not outcome.failures else FAILED


def report(campaign: Campaign, outcome: Outcome, seconds: float) -> list[str]:
    """The counts and failures of one campaign, as lines of text. seconds: its duration."""
    counts = {"faults": outcome.faults, **outcome.counts, "failures": len(outcome.failures)}
    rows = [(what, f"{number:,}") for what, number in counts.items()]
    verdict = "passed" if exit_status(outcome) == PASSED else "FAILED"
    return [
        f"{campaign.name}: {campaign.promise}",
        *(f"  failed: {line}" for line in outcome.failures),
        *(f"  {line}" for line in aligned(rows)),
        f"{campaign.name}: {verdict} in {seconds:.0f} s",
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats rows as lines of columns; the first column is left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
