"""`tile-oracle pick`: the kernel for a problem, by a model.

Prints the pick for each problem, what it is based on, and how long picking took.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from tile_oracle.commands.arguments import ONLY_JSON, PROBLEM_HELP
from tile_oracle.commands.kinds import problems_of_arguments
from tile_oracle.commands.open_registry import REGISTRY, open_registry, outside_note, say_models
from tile_oracle.commands.program_table import PICKS, winner, write_table
from tile_oracle.errors import ModelError, NoModelError, TargetError
from tile_oracle.foreign.aiter import Winner
from tile_oracle.problem import Problem
from tile_oracle.registry import Pick
from tile_oracle.registry.registry import Candidates
from tile_oracle.terminal.argument_table import argument_table

EXAMPLES = """\
examples:
  tile-oracle pick forward-bf16-n1-c64-k64-i56x56-f3x3-p1 --arch gfx950
  tile-oracle pick N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1 --arch gfx950 --top 3
  tile-oracle pick forward_smoke --arch gfx950 --ck-tile ~/composable_kernel
  tile-oracle pick forward_smoke --predictions --model models/mine --kernels names.txt --json
  tile-oracle pick gemm-bf16-rcr-m16-n4096-k4096 --search --model models/my_gemm

--predictions lists the kernels that the model was trained on, on gfx950 unless --arch or the model says
otherwise; --kernel-set or --kernels names others. Those that the architecture refuses have the reason.
"""


ARGUMENTS = argument_table(f"""
problems PROBLEM...  {PROBLEM_HELP}
--top K  picks shown (default: 1, with --predictions 10)
--json  print one object per problem and line {ONLY_JSON}
{PICKS}
--predictions  rank by the model alone, and show all that it predicts of each kernel: TFLOPS, latency,
    bandwidth; without --output
--search  the same of kernels that the architecture's rules allow, in the pool or not, which discrete
    differential evolution finds; without --output
--budget N=500  with --search: kernels that it predicts
--seed N=0  with --search: same seed, same kernels
--arch ARCH  pick for this architecture, which this machine need not have
--kernel-set NAME  the pool, or a list of kernels (.json); default: `default` on a target, and with --arch the
    model's training kernels
{REGISTRY}
""")


def run(args: argparse.Namespace) -> int:
    """Prints the picks; returns 1 when a problem has none. Raises HarnessError."""
    if args.top is not None and args.top < 1:
        raise ModelError("--top must be at least 1")
    if args.predictions or args.search:
        from tile_oracle.commands.predict import show_predictions

        return show_predictions(args)
    problems = problems_of_arguments(args.problems)
    status = 0
    winners: list[Winner] = []
    said = ""
    with open_registry(args, problems) as registry:
        for problem in problems:
            began = time.perf_counter()
            candidates = registry.candidates(problem)
            loaded = time.perf_counter()
            said = say_models(candidates, said)
            try:
                picks = registry.rank(problem, args.top or 1)
            except (NoModelError, TargetError) as error:
                status = 1
                if args.json:
                    print(json.dumps({"problem": problem.id, "notes": [str(error)], "picks": []}))
                print(f"tile-oracle pick: {error}", file=sys.stderr)
                continue
            took = time.perf_counter() - loaded
            if args.output is not None:
                winners.append(winner(problem, picks[0] if picks else None))
            if args.json:
                print(json.dumps(_as_json(problem, picks, candidates, loaded - began, took)))
            else:
                print(_as_text(problem, picks, candidates, loaded - began, took))
        if args.output is not None:
            write_table(args, winners, registry.arch or "")
    return status


def _as_text(
    problem: Problem, picks: list[Pick], candidates: Candidates, load_s: float, pick_s: float
) -> str:
    model = f" by {candidates.model} ({candidates.engine})" if candidates.rank is not None else ""
    loading = f", after loading for {_duration(load_s)}" if load_s > 1e-3 else ""
    notes = outside_note(problem, candidates)
    if picks and (reason := candidates.kernel_outside(picks[0].kernel)):
        notes.append(f"extrapolates: {reason}")
    lines = [f"{problem.id}: {len(candidates.kernels)} candidates{model}, {_duration(pick_s)}{loading}"]
    lines += [f"  {note}" for note in notes]
    for place, pick in enumerate(picks, 1):
        known = pick.predicted_tflops
        tflops = "" if known is None else f"{known:.4g} predicted TFLOPS"
        lines.append(f"{place:>4}  {tflops:>22}  {pick.kernel.name}")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    units = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
    unit, scale = next((one for one in units if seconds * one[1] >= 1), units[-1])
    return f"{seconds * scale:.3g} {unit}"


def _as_json(
    problem: Problem, picks: list[Pick], candidates: Candidates, load_s: float, pick_s: float
) -> dict[str, Any]:
    return {
        "problem": problem.id,
        "candidates": len(candidates.kernels),
        "model": candidates.model or None,
        "engine": candidates.engine or None,
        "load_us": round(1e6 * load_s, 1),
        "pick_us": round(1e6 * pick_s, 1),
        "outside_training": list(candidates.outside(problem)),
        "notes": [candidates.travel] if candidates.travel else [],
        "picks": [{"kernel": pick.kernel.name, "predicted_tflops": pick.predicted_tflops} for pick in picks],
    }
