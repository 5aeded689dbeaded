"""`tile-oracle tune`: measure the pool for problems and say the best kernels.

Measures the problems in a session, whose records are a run like any other, until the budget ends. The same
command goes on from there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tile_oracle.commands.arguments import ONLY_JSON, PROBLEM_HELP, write_text
from tile_oracle.commands.kinds import problems_of_arguments
from tile_oracle.commands.open_registry import REGISTRY, open_registry
from tile_oracle.commands.program_table import OUTPUT, winners_of_records, write_table
from tile_oracle.errors import ModelError, RecordError
from tile_oracle.exploration.cold_start import ColdStart, one_operation, transferable
from tile_oracle.exploration.tune_rounds import TuneRounds, measure
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.problem_set import format_problem_set, load_problem_set
from tile_oracle.process.cores import usable_cores
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements
from tile_oracle.record.run import check_name
from tile_oracle.registry import Registry
from tile_oracle.session.option_names import in_full
from tile_oracle.session.options import duration_s
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.progress_line import wait

EXAMPLES = """\
examples:
  tile-oracle tune forward-fp32-n1-c64-k64-i28x28-f1x1 --budget 20s --target cpu
  tile-oracle tune my_shapes.csv --budget 2m --kernel-set full
  tile-oracle tune --from-records inductor.parquet -o table.json --format inductor
  tile-oracle tune --problem-set forward_validation_300 --budget 30m      a new GPU, without a model
"""


SET_BUDGET = "30m"
"""Default budget of a problem set."""
GOES_ON = "what was measured is kept, and the same command goes on from there"
ARGUMENTS = argument_table(f"""
problems [PROBLEM...]  {PROBLEM_HELP}
--problem-set SET  without a model: measure what teaches most about all problems of a set together, by rounds
--from-records RUN...  with --output: write the oracles of runs there
--budget TIME  time for each problem (default: 60s), or for --problem-set (default: {SET_BUDGET})
--quiet  no progress, only the results
{OUTPUT}
--kernel-set NAME=default  the pool, or a list of kernels (.json)
{REGISTRY}
the measurements:
--run-name NAME  the run's folder below --report-dir; the same name resumes
--report-dir DIR=reports  where runs are kept
--seed N=0  with --problem-set: seed of the choice
--json  print the curve of a set, or one object per tuned problem and line {ONLY_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Measures; returns 1 when a problem has no kernel that is ok. Raises HarnessError."""
    if sum((bool(args.problems), bool(args.from_records), bool(args.problem_set))) != 1:
        raise ModelError("give problems, --from-records RUN or --problem-set SET, and only one of them")
    check_name(args.run_name)
    if args.from_records and args.output is not None:
        write_table(args, *winners_of_records(args.from_records, args.format))
        return 0
    problems = problems_of_arguments(args.problems or [args.problem_set] * bool(args.problem_set))
    with open_registry(args, problems) as registry:
        if args.problems:
            runs = [_measured(args, problems, str(registry.arch))]
        else:
            budget_s = duration_s("--budget", args.budget or SET_BUDGET)
            runs = _tune_set(args, registry, budget_s, _session_options(args, args.problem_set))
    oracles = find_oracles(final_measurements(load_records([Path(run) for run in runs])))
    found = oracles.dropna(subset="oracle_kernel")
    if args.problems:
        for one in found.to_dict("records"):
            print(_as_json(one) if args.json else _as_text(one))
    if args.output is not None:
        write_table(args, *winners_of_records(runs, args.format))
    asked = {one.id for one in problems if args.problems}
    return 0 if len(found) and asked <= set(found["problem"]) else 1


def _measured(args: argparse.Namespace, problems: Sequence[Any], arch: str) -> str:
    """Returns the folder of the run in which a session measures the problems."""
    several = f"-and-{len(problems) - 1}" if len(problems) > 1 else ""
    name = args.run_name or f"tune-{problems[0].id}{several}-{arch}"
    folder = args.report_dir.resolve()
    path = folder / f"{name}.csv"
    listed = format_problem_set(problems, ["tile-oracle tune"] * len(problems), "")
    if path.exists() and path.read_bytes() != listed.encode():
        raise RecordError(f"{path} exists and lists something else: choose another --run-name")
    write_text(path, listed)
    budget_s = len(problems) * duration_s("--budget", args.budget or "60s")
    model = {"model": args.model} if args.model else {}
    with wait(f"measuring {count(len(problems), 'problem')}: {folder / name}.txt"):
        measure(folder, name, _session_options(args, str(path)), budget_s, model)
    return str(folder / name)


def _session_options(args: argparse.Namespace, problem_set: str) -> list[str]:
    """Returns what a session gets from the command's own options."""
    named = Path(problem_set).expanduser()
    options = [
        *("-q", "-p", "no:cacheprovider"),
        f"--problem-set={named.resolve() if named.is_file() else problem_set}",
        f"--target={args.target}",
        f"--kernel-set={args.kernel_set}",
        f"--toolchain={args.toolchain}",
    ]
    for name in ("build_dir", "ck_tile", "kernels"):
        value = getattr(args, name)
        options += [f"--{name.replace('_', '-')}={value}"] if value else []
    return in_full(options)


def _as_text(oracle: Mapping[str, Any]) -> str:
    return (
        f"{oracle['problem']}: {oracle['oracle_tflops']:.4g} TFLOPS  {oracle['oracle_kernel']}\n"
        f"    best of {oracle['kernels_measured']} kernels"
    )


def _as_json(oracle: Mapping[str, Any]) -> str:
    names = {"kernel": "oracle_kernel", "tflops": "oracle_tflops", "measured": "kernels_measured"}
    return json.dumps({"problem": oracle["problem"], **{ours: oracle[name] for ours, name in names.items()}})


def _tune_set(
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
