"""`python -m tools.faults`: runs every campaign in processes of its own and prints one table at the end.

With --jobs a campaign is divided into parts that run in parallel, each with a seed of its own. --add runs
nothing: it adds up outcomes that campaigns wrote with --json, on this machine or on others.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import tools.faults
from tools.faults.campaign import (
    DEFAULT_SEED,
    FAILED,
    PASSED,
    Campaign,
    Outcome,
    aligned,
    exit_status,
    report,
    total,
)


@dataclass(frozen=True)
class Part:
    """One process of a campaign. seconds: its duration."""

    outcome: Outcome
    seconds: float


def campaigns() -> list[Campaign]:
    """The campaigns of this package, sorted by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(tools.faults.__path__))
    modules = [importlib.import_module(f"tools.faults.{name}") for name in names if name != "__main__"]
    return [module.CAMPAIGN for module in modules if hasattr(module, "CAMPAIGN")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaigns or adds outcomes up, prints the table; returns FAILED if a campaign failed."""
    every = {campaign.name: campaign for campaign in campaigns()}
    options = _parser(sorted(every)).parse_args(arguments)
    if options.add:
        found = _read(options.add)
        parts = {name: found[name] for name in every if name in found}
    else:
        parts = {}
        for name in options.only or every:
            count = max(1, round(every[name].full_count * options.share))
            parts[name] = _run(every[name], count, options.seed, options.jobs)
    rows: list[tuple[str, ...]] = [("campaign", "processes", "faults", "failures", "seconds", "verdict")]
    whole = {}
    for name, ran in parts.items():
        outcome = whole[name] = total([one.outcome for one in ran])
        seconds = max(one.seconds for one in ran)
        print(*report(every[name], outcome, seconds), "", sep="\n", flush=True)
        verdict = "passed" if exit_status(outcome) == PASSED else "FAILED"
        numbers = (len(ran), outcome.faults, len(outcome.failures))
        rows.append((name, *(f"{number:,}" for number in numbers), f"{seconds:.0f}", verdict))
    for line in aligned(rows):
        print(line)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(whole) + b"\n")
    return FAILED if not whole or any(map(exit_status, whole.values())) else PASSED


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="run only this campaign (repeatable)")
    parser.add_argument("--share", type=float, default=1.0, help="fraction of each full count, e.g. 0.01")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of the first part; others follow")
    parser.add_argument("--jobs", type=int, default=1, help="parts of a campaign that run in parallel")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the sums to this file")
    parser.add_argument("--add", type=Path, nargs="+", metavar="FILE", help="add up these outcomes instead")
    return parser


def _run(campaign: Campaign, count: int, seed: int, jobs: int) -> list[Part]:
    """Runs a campaign, in parallel parts if it can be divided."""
    number = max(1, min(jobs, count)) if campaign.divisible else 1
    shares = [count // number + (place < count % number) for place in range(number)]
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(_part, [campaign.name] * number, shares, range(seed, seed + number)))


def _part(name: str, count: int, seed: int) -> Part:
    """Runs one process of a campaign. A process that leaves no outcome is a failure."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", f"tools.faults.{name}"]
        command += ["--count", str(count), "--seed", str(seed), "--json", str(file)]
        status = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
        if not file.exists():
            return Part(Outcome(0, failures=[f"--seed {seed} ended with status {status}"]), 0.0)
        return _part_of(msgspec.json.decode(file.read_bytes()))


def _part_of(written: dict[str, Any]) -> Part:
    return Part(msgspec.convert(written, Outcome), written["seconds"])


def _read(files: Sequence[Path]) -> dict[str, list[Part]]:
    """The outcomes in these files, by campaign."""
    found: dict[str, list[Part]] = {}
    for file in files:
        written = msgspec.json.decode(file.read_bytes())
        found.setdefault(written["campaign"], []).append(_part_of(written))
    return found


if __name__ == "__main__":
    sys.exit(main())
