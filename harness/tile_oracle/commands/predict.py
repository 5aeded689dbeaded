"""`tile-oracle pick --predictions`: all that a model predicts of the kernels for a problem."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.commands.problem_arguments import problems_of_arguments
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder
from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.files.user_file import read_bytes
from tile_oracle.kernel import Kernel, kernel_of_kind
from tile_oracle.model.fitting_model import models_for, pool_of_model
from tile_oracle.model.made_by import MadeBy, travel_note
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import folder_of_model, model_places
from tile_oracle.operation import operation_named
from tile_oracle.pool import listed_pool
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.training.training_range import TrainingRange

_MOST_BYTES = 64 << 20


def show_predictions(args: argparse.Namespace) -> int:
    """Prints the rankings. Raises ProblemError, KernelError, ModelError, RuleError."""
    named = folder_of_model(args.model) if args.model else None
    loaded: dict[Path, Predictor] = {} if named is None else {named: Predictor.load(named)}
    for problem in problems_of_arguments(args.problems):
        arch = (args.arch or "gfx950") if named is None else loaded[named].spec.arch
        asked = _asked(args, problem.kind, arch)
        folder = named or _found(problem.kind, arch, asked or ())
        if folder not in loaded:
            loaded[folder] = Predictor.load(folder)
        predictor = loaded[folder]
        kernels = pool_of_model(folder, problem.kind) if asked is None else asked
        travel = ""
        if args.build_dir:
            if not predictor.reads_code:
                raise ModelError(f"{folder} does not use facts of binaries: leave --build-dir out")
            predictor = predictor.knowing(CodeTable.of_build(args.build_dir, [k.name for k in kernels]))
            toolchain = PrebuiltFolder(Path(args.build_dir)).facts.toolchain
            travel = travel_note([folder], MadeBy.of_names(toolchain))
        if not kernels and asked is None:
            kind = kind_text(problem.kind)
            raise ModelError(f"{folder} does not name kernels of {kind}: name some with --kernels")
        if not kernels:
            words = operation_named(problem.op).kind_words
            raise ModelError(f"no kernel matches {problem.id}: {words} must be the problem's")
        _print(predictor, problem, predictor.rank(problem, kernels)[: args.top or 10], travel, args.json)
    return 0


def _print(
    predictor: Predictor, problem: Problem, ranked: list[tuple[Kernel, float]], travel: str, as_json: bool
) -> None:
    arch, model = load_arch(predictor.spec.arch), predictor.folder.name
    refusals = {kernel.name: arch.problem_refusal(kernel, problem) for kernel, _ in ranked}
    scores = predictor.ranker.orders_only
    said = _of_members(predictor, problem, [kernel for kernel, _ in ranked])
    known = TrainingRange.of(predictor.folder)
    outside = () if known is None else known.problem_outside(problem)
    if as_json:
        picks = [
            {
                "kernel": kernel.name,
                "predicted_tflops": None if scores else tflops,
                "members": {name: values[place] for name, (_, values) in said.items()},
                "refusal": refusals[kernel.name],
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


def _asked(args: argparse.Namespace, kind: Kind, arch: str) -> Sequence[Kernel] | None:
    """The kernels that the arguments name; None for those of the model. Raises HarnessError."""
    listed = args.kernel_set or (args.kernels if str(args.kernels).endswith(".json") else None)
    if listed:
        return listed_pool(kind, arch, listed)
    return kernels_in_file(args.kernels, kind) if args.kernels else None


def _found(kind: Kind, arch: str, kernels: Sequence[Kernel]) -> Path:
    found = models_for(kind, arch, model_places(Path("models"), arch, replayed=True), kernels=kernels)
    if found.folder is None:
        raise ModelError(f"{found.why_none}: use --model")
    return found.folder


def kernels_in_file(file: str, kind: Kind) -> list[Kernel]:
    """The kernels of this kind that a file names by full or short names, one per line. Raises ModelError or
    KernelError."""
    try:
        names = read_bytes(file, _MOST_BYTES).decode("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"cannot read {file}: {reason}") from None
    kernels = [kernel_of_kind(kind, name) for name in names]
    return [kernel for kernel in kernels if kernel.kind == kind]
