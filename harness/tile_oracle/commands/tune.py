"""`tile-oracle tune`: measure the pool for problems and keep the best kernels."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from tile_oracle.commands.arguments import PROBLEMS, QUIET, argument
from tile_oracle.commands.json_output import progress_stream
from tile_oracle.commands.open_registry import open_registry, outside_note, registry_arguments
from tile_oracle.commands.problem_arguments import problems_of_arguments
from tile_oracle.commands.program_table import (
    AITER,
    OUTPUT,
    asked_table,
    winner,
    winners_of_records,
    write_table,
)
from tile_oracle.commands.tune_set import COLD_START_ARGUMENTS, seed_from_records, tune_set
from tile_oracle.errors import TargetError, TunedError
from tile_oracle.foreign.aiter import Winner
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.registry import Registry
from tile_oracle.session.options import duration_s

EXAMPLES = """\
examples:
  tile-oracle tune forward-fp32-n1-c64-k64-i28x28-f1x1 --budget 20s --target cpu
  tile-oracle tune my_shapes.csv --budget 2m --kernel-set full
  tile-oracle tune --from-records reports/my_run
  tile-oracle tune --from-records inductor.parquet -o table.json --format inductor
  tile-oracle tune --problem-set forward_validation_300 --budget 30m      a new GPU, without a model

Tuned results are what `tile-oracle pick` and tile_oracle.registry.Registry use first. They are used only if
device, toolchain and kernel source match the measurement; stale results are reported and not used.
"""


ABOUT = "Measures kernels (in the model's order where one fits) until the budget of each problem ends."
ARGUMENTS = (
    replace(PROBLEMS, attributes={**PROBLEMS.attributes, "nargs": "*"}),
    argument("--budget", "TIME", "time for each problem (default: 60s), or for --problem-set"),
    argument("--most", "N", "measure at most N kernels (default: all)", type=int),
    argument(
        "--from-records", "RUN", "keep the oracles of runs, without measuring anything", nargs="+", default=()
    ),
    QUIET,
    *AITER,
    *OUTPUT,
    COLD_START_ARGUMENTS,
    *registry_arguments(arch=False),
)


def run(args: argparse.Namespace) -> int:
    """Measures and keeps; 1 when a problem has no kernel that is ok. Raises HarnessError."""
    if sum((bool(args.problems), bool(args.from_records), bool(args.problem_set))) != 1:
        raise TunedError(
            "give problems to measure, runs by --from-records, or a set by --problem-set, and only "
            "one of them"
        )
    table = asked_table(args)
    if table is not None and args.problem_set:
        raise TunedError(
            "a table needs the problems as arguments, of which a file of problems is one, or --from-records"
        )
    if table is not None and args.from_records:
        write_table(args, *winners_of_records(args.from_records, table[0]))
        return 0
    if args.problem_set:
        return tune_set(args)
    budget_s = duration_s("--budget", args.budget or "60s")
    problems = problems_of_arguments(args.problems)
    status = 0
    winners: list[Winner] = []
    with open_registry(args, None, problems) as registry:
        if args.from_records:
            return seed_from_records(registry, args.from_records)
        for problem in problems:
            if not args.quiet:
                print(f"{problem.id}:", file=sys.stderr, flush=True)
                for line in outside_note(problem, registry.candidates(problem)):
                    print(f"    {line}", file=sys.stderr, flush=True)
            try:
                show = None if args.quiet else _Progress(registry, problem, args.most)
                tuning = registry.tune(problem, budget_s, kernels=args.most, watch=show)
            except TargetError as error:
                print(f"tile-oracle tune: {error}", file=sys.stderr)
                status = 1
                continue
            measured, pick = tuning.measured, tuning.pick
            if table is not None:
                winners.append(winner(problem, pick))
            if args.json:
                print(
                    json.dumps(
                        {
                            "problem": problem.id,
                            "kernel": pick.kernel.name,
                            "tflops": pick.measured_tflops,
                            "measured": measured.measured,
                            "pool": measured.pool,
                            "statuses": measured.statuses,
                            "seconds": measured.seconds,
                        }
                    )
                )
                continue
            print(
                f"{problem.id}: {pick.measured_tflops:.4g} TFLOPS  {pick.kernel.name}\n"
                f"    best of {measured.measured} of {measured.pool} kernels ("
                + ", ".join(f"{count} {word}" for word, count in sorted(measured.statuses.items()))
                + f"), {measured.seconds:.1f} s"
            )
        if table is not None:
            write_table(args, winners, registry.arch or "")
        if registry.tuned is not None:
            print(f"tuned results: {registry.tuned.path}", file=progress_stream(args))
    return status


class _Progress:
    """A line a measurement: its number of how many, or that it is a leader's second one."""

    def __init__(self, registry: Registry, problem: Problem, most: int | None) -> None:
        pool = len(registry.candidates(problem).kernels)
        self._total = pool if most is None else min(pool, most)
        self._done = 0

    def __call__(self, measurement: Measurement) -> None:
        again = measurement.round >= ROUND_FINAL
        self._done += not again
        place = "again" if again else f"{self._done}/{self._total}"
        figure = f"{measurement.tflops:.4g} TFLOPS" if measurement.ok else measurement.status
        line = f"{place:>9}  {figure:<16}  {measurement.kernel.name}"
        print(line, file=sys.stderr, flush=True)
