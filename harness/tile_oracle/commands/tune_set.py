"""`tile-oracle tune --problem-set`: a cold start over a problem set."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, TextIO

from tile_oracle.commands.arguments import Group, argument, json_flag, seed
from tile_oracle.commands.open_registry import open_registry
from tile_oracle.record.dataset import load_records
from tile_oracle.registry import Registry
from tile_oracle.registry.seed import entries_of_records
from tile_oracle.session.option_names import in_full
from tile_oracle.session.options import duration_s

BUDGET = "30m"
"""Default budget of a problem set."""


COLD_START_ARGUMENTS = Group(
    (
        argument(
            "--problem-set",
            "SET",
            "measure what teaches most about all problems of a set together, within one --budget (default: "
            f"{BUDGET})",
        ),
        argument("--run-name", "NAME", "folder of the rounds below --report-dir; the same name resumes"),
        argument("--report-dir", "DIR", "where the rounds are kept", type=Path, default=Path("reports")),
        seed("seed of the choice"),
        json_flag("the curve of a set, or one object per tuned problem and line"),
    ),
    "a problem set without a model (cold start)",
)


def tune_set(args: argparse.Namespace) -> int:
    """Measures a problem set by rounds and keeps the best kernels. Raises HarnessError."""
    from tile_oracle.exploration.cold_start import ColdStart, one_operation, transferable
    from tile_oracle.exploration.tune_rounds import TuneRounds
    from tile_oracle.problem_set import load_problem_set
    from tile_oracle.process.cores import usable_cores

    budget_s = duration_s("--budget", args.budget or BUDGET)
    problem_set = load_problem_set(args.problem_set)
    one_operation(problem_set.problems)
    with open_registry(args, None, problem_set.problems) as registry:
        arch = str(registry.arch)
        of_kind = {problem.kind: registry.candidates(problem).kernels for problem in problem_set.problems}
        kernels = list(dict.fromkeys(kernel for pool in of_kind.values() for kernel in pool))
        settings = {
            "problem set": problem_set.sha256,
            "arch": arch,
            "kernel set": args.kernel_set,
            "seed": args.seed,
        }
        rounds = TuneRounds(
            (args.report_dir / (args.run_name or f"tune-{problem_set.name}-{arch}")).resolve(),
            ColdStart.of(
                problem_set.problems,
                kernels,
                arch,
                transferable(problem_set.problems, arch),
                args.seed,
                usable_cores(),
            ),
            in_full(_session_options(args)),
            settings,
        )
        rounds.load()
        if not (args.json or args.quiet):
            print(
                f"{rounds.start.problems} problems, {len(rounds.start.table):,} pairs on {arch}; "
                f"{rounds.folder}"
            )
        rounds.run(budget_s, None if args.json or args.quiet else _show_round)
        curve = rounds.curve()
        if args.json:
            print(json.dumps({"folder": str(rounds.folder), "arch": arch, "curve": curve}))
        runs = [str(rounds.folder / one.name) for one in rounds.rounds]
        say = sys.stderr if args.json else sys.stdout
        return seed_from_records(registry, runs, say)


def seed_from_records(registry: Registry, runs: list[str], say: TextIO | None = None) -> int:
    """Keeps the oracles of runs as tuned results; 1 when there is none. Raises HarnessError."""
    assert registry.tuned is not None
    found = entries_of_records(load_records([Path(run) for run in runs]))
    of_arch = [entry for entry in found.entries if entry.arch == registry.arch]
    registry.tuned.add(of_arch)
    left_out = dict(found.left_out)
    if others := len(found.entries) - len(of_arch):
        left_out[f"not of {registry.arch}"] = others
    print(
        f"{len(of_arch)} tuned results from records"
        + "".join(f"; {count} problems {reason}" for reason, count in sorted(left_out.items()))
        + f": {registry.tuned.path}",
        file=say,
    )
    return 0 if of_arch else 1


def _session_options(args: argparse.Namespace) -> list[str]:
    """Returns what the sessions of the rounds get from the command's own options."""
    named = Path(args.problem_set).expanduser()
    options = [
        *("-q", "-p", "no:cacheprovider"),
        f"--problem-set={named.resolve() if named.is_file() else args.problem_set}",
        f"--target={args.target}",
        f"--kernel-set={args.kernel_set}",
        f"--toolchain={args.toolchain}",
    ]
    for name, value in (
        ("--build-dir", args.build_dir),
        ("--ck-tile", args.ck_tile),
        ("--kernels", args.kernels),
    ):
        options += [f"{name}={value}"] if value else []
    return options


def _show_round(rounds: Any) -> None:
    one = rounds.rounds[-1]
    expected = one.expected_regret_percent
    regret = "" if expected is None else f", expected regret before it {expected:.1f} %"
    print(
        f"{one.name}: {one.pairs:,} pairs in {one.seconds:.0f} s; {one.per_problem:.1f} a problem{regret}",
        flush=True,
    )
