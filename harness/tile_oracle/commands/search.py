"""`tile-oracle pool search`: kernels that a model expects to be fast, in the pool or not."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tile_oracle.commands.arguments import argument, json_flag, seed
from tile_oracle.commands.json_output import print_json
from tile_oracle.exploration.search import best_of, search
from tile_oracle.model.fitting_model import lines_on, models_for
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import folder_of_model, model_places
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import problem_from_id

EXAMPLES = """\
examples:
  tile-oracle pool search forward-bf16-n1-c64-k64-i56x56-f3x3-p1 --budget 500
  tile-oracle pool search gemm-bf16-rcr-m16-n4096-k4096 --model models/my_gemm

Every proposed kernel is one that the architecture's rules allow. `measured` says whether the model saw
measurements of that kernel; for others the prediction is an extrapolation.
"""


ABOUT = "Searches by discrete differential evolution, reproducible by the seed."
ARGUMENTS = (
    argument("problem", "PROBLEM", "problem id"),
    argument("--model", "FOLDER", "model folder (default: the one that fits)"),
    argument("--arch", "ARCH", "architecture of the shipped model", default="gfx950"),
    argument("--budget", "N", "kernels in all", type=int, default=500),
    seed("same seed: same kernels"),
    argument("--top", "N", "kernels to show", type=int, default=10),
    json_flag("the kernels"),
)


_KNOWN = {True: "measured", False: "not measured", None: "the model does not list its training kernels"}


def run(args: argparse.Namespace) -> int:
    """Prints the best kernels. Raises ProblemError, ModelError."""
    problem = problem_from_id(args.problem)
    if args.model:
        folder = folder_of_model(args.model)
    else:
        pool = pool_of_kind(problem.kind, args.arch)
        models = models_for(problem.kind, args.arch, model_places(Path("models"), args.arch), kernels=pool)
        folder = models.required
        print("\n".join(lines_on([models])), file=sys.stderr)
    predictor = Predictor.load(folder)
    found = search(predictor, problem, args.budget, args.seed)
    best = best_of(found, predictor, args.top)
    if args.json:
        print_json(
            {
                "problem": problem.id,
                "model": folder.name,
                "kernels": len(found),
                "best": [
                    {
                        "kernel": one.kernel.name,
                        "predicted_tflops": one.predicted_tflops,
                        "measured": one.measured,
                    }
                    for one in best
                ],
            }
        )
        return 0
    print(f"{problem.id}: {len(found)} kernels ({folder.name})")
    for place, one in enumerate(best, 1):
        known = _KNOWN[one.measured]
        print(f"{place:>4}  {one.predicted_tflops:9.2f} TFLOPS  buildable, {known}  {one.kernel.name}")
    return 0
