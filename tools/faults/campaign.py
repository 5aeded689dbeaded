"""Shared by all fault campaigns: options, the table of counts and the exit status."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

PASSED, FAILED = 0, 1
DEFAULT_SEED = 20260


@dataclass(frozen=True)
class Outcome:
    """The result of a campaign.

    faults: number of injected faults. counts: outcome -> number, in display order. failures: one line per
    broken promise; a campaign passes if there are none. sizes: numbers that describe the set-up, such as the
    file calls of a session; they do not add up over several runs.
    """

    faults: int
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


def total(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of several runs of one campaign together. Of a size the largest is kept."""
    counts: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    for one in outcomes:
        counts.update(one.counts)
        sizes |= {what: max(number, sizes.get(what, number)) for what, number in one.sizes.items()}
    failures = [line for one in outcomes for line in one.failures]
    return Outcome(sum(one.faults for one in outcomes), dict(counts), failures, sizes)


@dataclass(frozen=True)
class Campaign:
    """One kind of fault.

    name: the module's name. promise: what must hold, in one line. full_count: number of faults of a full run.
    run: takes the number of faults, a seed and its own options by name; deterministic in its choice of
    faults. divisible: whether runs with different seeds add up to a larger one.
    """

    name: str
    promise: str
    full_count: int
    run: Callable[..., Outcome]
    divisible: bool = True


def main(
    campaign: Campaign, arguments: Sequence[str] | None = None, *own_options: argparse.ArgumentParser
) -> int:
    """The command line of one campaign: runs it, prints its table, returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.faults.{campaign.name}", description=campaign.promise, parents=own_options
    )
    parser.add_argument("--count", type=int, default=campaign.full_count, help="faults to inject")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the outcome to this file; -: as the last line printed",
    )
    own = vars(parser.parse_args(arguments))
    count, seed, json_file = (own.pop(name) for name in ("count", "seed", "json"))
    if count < 1:
        parser.error("--count must be 1 or more")
    begun = time.monotonic()
    outcome = campaign.run(count, seed, **own)
    seconds = time.monotonic() - begun
    for line in report(campaign, outcome, seconds):
        print(line)
    if json_file is not None:
        asked = {"campaign": campaign.name, "count": count, "seed": seed}
        text = json.dumps(asked | msgspec.to_builtins(outcome) | {"seconds": seconds})
        if json_file == "-":
            print(text, flush=True)
        else:
            Path(json_file).write_text(text + "\n")
    return exit_status(outcome)


def exit_status(outcome: Outcome) -> int:
    """PASSED or FAILED. A campaign that injected no fault has tested nothing, so it fails."""
    return PASSED if outcome.faults and not outcome.failures else FAILED


def report(campaign: Campaign, outcome: Outcome, seconds: float) -> list[str]:
    """The counts and failures of one campaign, as lines of text. seconds: its duration."""
    counts = {"faults": outcome.faults, **outcome.counts, **outcome.sizes, "failures": len(outcome.failures)}
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
