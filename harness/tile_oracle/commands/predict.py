"""`tile-oracle pick --predictions`: all that a model predicts of the kernels for a problem."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.commands.kinds import problems_of_arguments
from tile_oracle.commands.open_registry import open_registry, say_models
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder
from tile_oracle.errors import ModelError
from tile_oracle.exploration.search import best_of, search
from tile_oracle.features.code_table import CodeTable
from tile_oracle.kernel import Kernel
from tile_oracle.model.made_by import MadeBy, travel_note
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import folder_of_model
from tile_oracle.problem import Problem
from tile_oracle.registry.registry import PYTHON
from tile_oracle.training.training_range import TrainingRange


def show_predictions(args: argparse.Namespace) -> int:
    """Prints the rankings. Raises ProblemError, KernelError, ModelError, RuleError."""
    if args.arch is None and args.target == "auto":
        args.arch = read_spec(folder_of_model(args.model)).arch if args.model else "gfx950"
    args.engine, said = PYTHON, ""
    problems = problems_of_arguments(args.problems)
    with open_registry(args, problems) as registry:
        for problem in problems:
            candidates = registry.candidates(problem)
            predictor, folder = candidates.predictor, candidates.folder
            if predictor is None or folder is None:
                raise ModelError(f"{candidates.why}: use --model")
            said, travel = say_models(candidates, said), ""
            if args.build_dir:
                if not predictor.reads_code:
                    raise ModelError(f"{folder} does not use facts of binaries: leave --build-dir out")
                code = CodeTable.of_build(args.build_dir, [k.name for k in candidates.kernels])
                predictor = predictor.knowing(code)
                toolchain = PrebuiltFolder(Path(args.build_dir)).facts.toolchain
                travel = travel_note([folder], MadeBy.of_names(toolchain))
            if args.search:
                ranked = best_of(search(predictor, problem, args.budget, args.seed))
            else:
                ranked = predictor.rank(problem, candidates.kernels)
            ranked = ranked[: args.top or 10]
            _print(predictor, problem, ranked, travel, args.json)
    return 0


def _print(
    predictor: Predictor, problem: Problem, ranked: list[tuple[Kernel, float]], travel: str, as_json: bool
) -> None:
    arch, model = load_arch(predictor.spec.arch), predictor.folder.name
    refusals = {kernel.name: arch.problem_refusal(kernel, problem) for kernel, _ in ranked}
    known = TrainingRange.of(predictor.folder)
    unknown = {} if known is None else {one.name: known.kernel_outside(one.name) for one, _ in ranked}
    scores = predictor.ranker.orders_only
    said = _of_members(predictor, problem, [kernel for kernel, _ in ranked])
    outside = () if known is None else known.problem_outside(problem)
    if as_json:
        picks = [
            {
                "kernel": kernel.name,
                "predicted_tflops": None if scores else tflops,
                "members": {name: values[place] for name, (_, values) in said.items()},
                "refusal": refusals[kernel.name],
                "extrapolates": unknown.get(kernel.name) or None,
            }
            for place, (kernel, tflops) in enumerate(ranked)
        ]
        units = {name: unit for name, (unit, _) in said.items()}
        found = {"problem": problem.id, "model": model, "units": units, "picks": picks}
        print(json.dumps({**found, "outside_training": list(outside), "travel": travel}))
        return
    print(f"{problem.id}  ({model}{', which orders kernels and predicts no TFLOPS' * scores})")
    if outside:
        print(f"      outside of its training: {'; '.join(outside)}")
    if travel:
        print(f"      {travel}")
    for place, (kernel, tflops) in enumerate(ranked):
        reason = refusals[kernel.name]
        refused = f"  (refuses this problem: {reason})" if reason else ""
        if why := unknown.get(kernel.name):
            refused += f"  ({why})"
        more = ", ".join(f"{name} {values[place]:.4g} {unit}" for name, (unit, values) in said.items())
        first = "" if scores else f"{tflops:9.2f} TFLOPS  "
        print(f"{place + 1:>4}  {first}{kernel.name}{f'  [{more}]' if more else ''}{refused}")


def _of_members(
    predictor: Predictor, problem: Problem, kernels: list[Kernel]
) -> dict[str, tuple[str, list[float]]]:
    """Member -> (unit, its prediction for each kernel). Members that only order kernels predict nothing. A
    single member that decides the ranking adds nothing to it and is left out."""
    members = [member.name for member in predictor.ranker.members if not member.relative]
    if members == ["tflops"]:
        return {}
    units = {"tflops": "TFLOPS", "bandwidth": "GB/s"}
    return {
        name: (units.get(name, "ms"), [float(one) for one in predictor.predict(problem, kernels, name)])
        for name in members
    }
