"""The registry that `pick` and `tune` ask: its arguments, and what is said of its model."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.commands.arguments import BUILD_DIR, CK_TILE, KERNELS, TOOLCHAIN, take_source
from tile_oracle.kernel import Kernel, kernel_of_kind
from tile_oracle.model.fitting_model import lines_on
from tile_oracle.model.store import folder_of_model
from tile_oracle.pool.rules import rules_of
from tile_oracle.problem import Kind, Problem
from tile_oracle.registry import Registry
from tile_oracle.registry.registry import ENGINES, Candidates
from tile_oracle.selector.export import read_names
from tile_oracle.targets import TargetOptions

REGISTRY = f"""\
--target NAME=auto  auto, cpu, gfx950, gfx942, gfx90a or sm_90
{CK_TILE}
{KERNELS}
--model MODEL  model folder, or the name of one in models/ or of a shipped one (default: the one that fits)
--engine {"|".join(ENGINES)}=auto  how the model is evaluated: native code, compiled once, or Python
{BUILD_DIR}
{TOOLCHAIN}"""
"""The arguments that name a registry's target, kernels, model and folders, for an `argument_table`."""


def open_registry(args: argparse.Namespace, problems: Sequence[Problem] = ()) -> Registry:
    """Returns the registry that the arguments ask for, for these problems; its messages go to stderr. Raises
    HarnessError."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    named: list[Kernel] = []
    if args.kernels and Path(args.kernels).suffix not in (".json", ".py") and Path(args.kernels).is_file():
        for kind in dict.fromkeys(problem.kind for problem in problems):
            named += kernels_in_file(args.kernels, kind)
        args.kernels = None
    source = take_source(args, args.ck_tile)
    return Registry(
        args.target,
        arch=getattr(args, "arch", None),
        kernels=named or (args.kernel_set and rules_of(args.kernel_set, args.ck_tile)),
        model=args.model and folder_of_model(args.model),
        models=Path("models"),
        engine=args.engine,
        options=TargetOptions(toolchain=args.toolchain, build_dir=args.build_dir, sources=(source,)),
    )


def kernels_in_file(file: str, kind: Kind) -> list[Kernel]:
    """Returns the kernels of this kind that a file names by full or short names, one per line. Raises
    ModelError or KernelError."""
    kernels = [kernel_of_kind(kind, name) for name in read_names(file)]
    return [kernel for kernel in kernels if kernel.kind == kind]


def say_models(candidates: Candidates, said: str) -> str:
    """Says on stderr which model was taken and what else fits, unless it was said before. Returns that."""
    lines = "\n".join(lines_on([candidates.models]) if candidates.models and candidates.rank else ())
    if lines and lines != said:
        print(lines, file=sys.stderr)
    return lines


def outside_note(problem: Problem, candidates: Candidates) -> list[str]:
    """Returns a line when the problem is outside of what its model was trained on, and one when the kernels
    are built or run otherwise than those that it was trained on."""
    reasons = candidates.outside(problem)
    outside = [f"outside of its training: {'; '.join(reasons)}"] if reasons else []
    return outside + ([candidates.travel] if candidates.travel else [])
