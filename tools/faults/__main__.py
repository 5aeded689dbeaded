"""`python -m tools.faults`: runs every campaign in its own process and prints one table at the end."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tools.faults
from tools.faults.campaign import DEFAULT_SEED, FAILED, PASSED, Campaign, aligned


def campaigns() -> list[Campaign]:
    """The campaigns of this package, sorted by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(tools.faults.__path__))
    modules = [importlib.import_module(f"tools.faults.{name}") for name in names if name != "__main__"]
    return [module.CAMPAIGN for module in modules if hasattr(module, "CAMPAIGN")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaigns and prints the table; returns FAILED if one of them failed."""
    every = {campaign.name: campaign for campaign in campaigns()}
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(every), help="run only this campaign (repeatable)"
    )
    parser.add_argument("--share", type=float, default=1.0, help="fraction of each full count, e.g. 0.01")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    options = parser.parse_args(arguments)
    rows = [("campaign", "faults", "failures", "seconds", "verdict")]
    statuses = []
    for name in options.only or every:
        count = max(1, round(every[name].full_count * options.share))
        status, row = _run(name, count, options.seed)
        statuses.append(status)
        rows.append(row)
        print(flush=True)
    for line in aligned(rows):
        print(line)
    return FAILED if any(statuses) else PASSED


def _run(name: str, count: int, seed: int) -> tuple[int, tuple[str, str, str, str, str]]:
    """Exit status and row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", f"tools.faults.{name}"]
        command += ["--count", str(count), "--seed", str(seed), "--json", str(file)]
        status = subprocess.run(command, check=False).returncode
        if not file.exists():
            return status or FAILED, (name, "-", "-", "-", f"ended with status {status}")
        found = json.loads(file.read_text())
    verdict = "passed" if status == PASSED else "FAILED"
    failures, seconds = len(found["failures"]), found["seconds"]
    return status, (name, f"{found['faults']:,}", f"{failures:,}", f"{seconds:.0f}", verdict)


if __name__ == "__main__":
    sys.exit(main())
