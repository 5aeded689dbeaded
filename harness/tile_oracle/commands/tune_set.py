"""`tile-oracle tune --problem-set`: a cold start over a problem set."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from tile_oracle.exploration.cold_start import ColdStart, one_operation, transferable
from tile_oracle.exploration.tune_rounds import TuneRounds
from tile_oracle.problem_set import load_problem_set
from tile_oracle.process.cores import usable_cores
from tile_oracle.registry import Registry


def tune_set(
    args: argparse.Namespace, registry: Registry, budget_s: float, session: Sequence[str]
) -> list[str]:
    """Measures a problem set by rounds; returns the folders of their runs. session: the options of their
    sessions. Raises HarnessError."""
    problem_set, arch = load_problem_set(args.problem_set), str(registry.arch)
    one_operation(problem_set.problems)
    of_kind = {problem.kind: registry.candidates(problem).kernels for problem in problem_set.problems}
    kernels = list(dict.fromkeys(kernel for pool in of_kind.values() for kernel in pool))
    settings = {
        "problem set": problem_set.sha256,
        "arch": arch,
        "kernel set": args.kernel_set,
        "seed": args.seed,
    }
    prior = transferable(problem_set.problems, arch)
    start = ColdStart.of(problem_set.problems, kernels, arch, prior, args.seed, usable_cores())
    folder = (args.report_dir / (args.run_name or f"tune-{problem_set.name}-{arch}")).resolve()
    rounds = TuneRounds(folder, start, session, settings)
    rounds.load()
    said = args.json or args.quiet
    if not said:
        print(f"{start.problems} problems, {len(start.table):,} pairs on {arch}; {folder}")
    rounds.run(budget_s, None if said else _show_round)
    if args.json:
        print(json.dumps({"folder": str(folder), "arch": arch, "curve": rounds.curve()}))
    return [str(folder / one.name) for one in rounds.rounds]


def _show_round(rounds: TuneRounds) -> None:
    one = rounds.rounds[-1]
    expected = one.expected_regret_percent
    regret = "" if expected is None else f", expected regret before it {expected:.1f} %"
    print(
        f"{one.name}: {one.pairs:,} pairs in {one.seconds:.0f} s; {one.per_problem:.1f} a problem{regret}",
        flush=True,
    )
