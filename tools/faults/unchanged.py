"""Real sessions without a change: a baseline, then repeats of the same sweep.

Each session compiles (using the cache of the first), measures and judges as usual, in its own report folder.
Only noise can make a session fail here. Needs a compiler but no installation: it runs from a checkout, with
any Python that has pytest, pandas, pyarrow and lightgbm.

    python -m tools.faults.unchanged --count 50
    python -m tools.faults.unchanged --count 50 --jobs 8 --toolchain g++ --keep unchanged

--jobs divides the cores into disjoint sets. On each set a series of sessions runs in parallel with the
others: its own baseline, then its share of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.source_tree import plugin_options, search_path

NOT_FAILED = 0.98


@dataclass(frozen=True)
class Setting:
    """How the sessions run. jobs: parallel series. keep: the folder for reports and
    logs; None for a temporary one. extra: further arguments for pytest."""

    problem_set: str = "forward_smoke"
    target: str = "cpu"
    toolchain: str = "auto"
    jobs: int = 1
    keep: Path | None = None
    extra: Sequence[str] = ()


@dataclass(frozen=True)
class Session:
    """The result of one session. state: of its verdict, "" if there is none. failed: criteria not met."""

    name: str
    status: int
    seconds: float
    state: str = ""
    failed: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    tail: str = ""


def series(folder: Path, count: int, cores: Sequence[int], setting: Setting) -> list[Session]:
    """Runs a baseline, then `count` repeats, on these cores. A baseline that is not accepted ends the
    series."""
    found = [session(folder, "baseline", cores, setting, "--update-baseline")]
    if found[0].status == 0:
        found += [session(folder, f"repeat-{number + 1}", cores, setting) for number in range(count)]
    return found


def session(folder: Path, name: str, cores: Sequence[int], setting: Setting, *arguments: str) -> Session:
    """Runs one sweep below `folder`, with its output in NAME.log."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    reports = folder / "reports"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin_options()),
        *("--problem-set", setting.problem_set, "--target", setting.target),
        *("--toolchain", setting.toolchain, "--report-dir", str(reports), "--run-name", name),
        *("--baseline-dir", str(folder / "baselines"), *setting.extra, *arguments),
    ]
    began = time.monotonic()
    with (folder / f"{name}.log").open("w") as log:
        status = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": search_path(), "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            check=False,
        ).returncode
    seconds = time.monotonic() - began
    verdict = reports / name / "verdict.json"
    tail = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()[-1:]
    if not verdict.is_file():
        return Session(name, status, seconds, tail="".join(tail))
    document = json.loads(verdict.read_text())["verdict"]
    by_outcome = {
        outcome: tuple(one["name"] for one in document["criteria"] if one["outcome"] == outcome)
        for outcome in ("fail", "cannot tell")
    }
    return Session(
        name,
        status,
        seconds,
        document["state"],
        by_outcome["fail"],
        by_outcome["cannot tell"],
        "".join(tail),
    )


def run(count: int, seed: int, **options: Any) -> Outcome:
    """Runs `count` repeats in total. options: of the Setting. The seed is ignored: only noise varies."""
    setting = Setting(**options)
    with tempfile.TemporaryDirectory(prefix="unchanged-") as scratch:
        folder = setting.keep or Path(scratch)
        cores = sorted(os.sched_getaffinity(0))
        jobs = max(1, min(setting.jobs, len(cores), count))
        shares = [count // jobs + (number < count % jobs) for number in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            started = [
                pool.submit(series, folder / f"series-{number + 1}", share, cores[number::jobs], setting)
                for number, share in enumerate(shares)
            ]
            found = [one.result() for one in started]
    return outcome_of(found)


def outcome_of(found: Sequence[Sequence[Session]]) -> Outcome:
    """Counts the results of the repeats of all series."""
    baselines = [one[0] for one in found]
    repeats = [one for sessions in found for one in sessions[1:]]
    counts: Counter[str] = Counter()
    for one in repeats:
        counts[f"exit status {one.status}: {one.state or 'no verdict'}"] += 1
    for one in repeats:
        for name in one.failed:
            counts[f"not met: {name}"] += 1
        for name in one.undecided:
            counts[f"cannot tell: {name}"] += 1
    sizes = {}
    if repeats:
        sizes["seconds a session"] = round(sum(one.seconds for one in repeats) / len(repeats))
    failures = [
        f"a baseline ended with status {one.status}: {one.tail}" for one in baselines if one.status != 0
    ]
    failed = [one for one in repeats if one.state == "failed" or one.status == 1]
    if len(failed) > (1 - NOT_FAILED) * len(repeats) + 1e-9:
        failures.append(f"{len(failed)} of {len(repeats)} unchanged sessions failed")
    broken = [one for one in repeats if not one.state or 2 <= one.status <= 9]
    failures += [f"{one.name} ended with status {one.status}: {one.tail}" for one in broken]
    return Outcome(len(repeats), counts, failures, sizes)


CAMPAIGN = Campaign(
    "unchanged",
    "of 50 sessions without a change at least 49 do not fail",
    50,
    run,
    divisible=False,
)


def _options() -> argparse.ArgumentParser:
    """The fields of Setting."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--problem-set", default=Setting.problem_set)
    parser.add_argument("--target", default=Setting.target)
    parser.add_argument("--toolchain", default=Setting.toolchain)
    parser.add_argument("--jobs", type=int, default=1, help="parallel series, on disjoint cores")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep reports and logs in this folder")
    parser.add_argument(
        "--pytest",
        dest="extra",
        type=shlex.split,
        default=(),
        metavar="ARGS",
        help="further arguments for pytest, quoted as one word",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(CAMPAIGN, None, _options()))
