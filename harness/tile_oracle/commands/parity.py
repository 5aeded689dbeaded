"""`tile-oracle model parity`: whether a deployed picker picks what its model folder picks."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from tile_oracle.commands.arguments import DEFAULT_KERNEL_SET, argument, json_flag, one_of
from tile_oracle.commands.export import kernels_to_export
from tile_oracle.commands.json_output import print_json
from tile_oracle.commands.problem_arguments import problems_of_arguments
from tile_oracle.errors import ModelError
from tile_oracle.model.store import folder_of_model, kernels_trained_on
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.selector.c_predictor import c_predictor_parity, what_is_read
from tile_oracle.selector.ck_tile_parity import HEADER, ck_tile_parity
from tile_oracle.selector.export import export_model
from tile_oracle.selector.fmha_parity import fmha_parity, is_fmha
from tile_oracle.selector.parity import MOST_PROBLEMS, Parity, own_export, problems_like

EXAMPLES = f"""\
examples:
  tile-oracle model parity grouped_conv_forward_bf16_gfx950     the model against an export made now
  tile-oracle model parity models/mine --export selector        against a folder that was exported before
  tile-oracle model parity models/mine forward_validation_300 --export selector/forward_bf16_2d.selector
  tile-oracle model parity gemm_universal_fp8_gfx950 --ck-tile ~/composablekernel --kernel-set default
  tile-oracle model parity models/fmha_fwd_gfx950/model_tflops.lgbm --ck-tile ~/composablekernel
  tile-oracle model parity models/fmha_bf16_gfx950 --c-predictor model_tflops_bf16.c

Every score and pick of the whole pool is compared; the first that differ are named with both values.
Without problems, up to {MOST_PROBLEMS} of the shipped sets are taken, in the model's data type. The status
is 0 if all picks and scores are those of the model folder, else 1. docs/selector.md has more.
"""

ABOUT = (
    "Asks a deployed picker and the model folder that it was made from for every kernel of a pool, and\n"
    "compares features, scores and picks."
)
ARGUMENTS = (
    argument("model", "MODEL", "model folder, or the name of a shipped model"),
    argument("problems", "PROBLEM", "problem id, dimensions, a set's name or a file of problems", nargs="*"),
    argument(
        "--export", "PLACE", "what `model export` wrote: the folder, or a .selector file in it", type=Path
    ),
    argument(
        "--ck-tile",
        "DIR",
        "compare with the dispatcher's C++ heuristic (ml_heuristic.hpp, or that of attention) in a checkout "
        "of Composable Kernel",
        type=Path,
    ),
    argument(
        "--c-predictor",
        "FILE",
        "compare with a C file made from the model's trees, such as rocKE's; MODEL may be a LightGBM file",
        type=Path,
    ),
    one_of(
        argument("--kernel-set", "SET", "the pool: the kernels of a rule set (default: those trained on)"),
        argument("--kernels", "FILE", "the pool: a file of kernel names, one per line"),
    ),
    json_flag("the counts and first differences"),
)


def run(args: argparse.Namespace) -> int:
    """Prints what differs; 1 if anything does. Raises HarnessError."""
    folder, problems = folder_of_model(args.model), problems_of_arguments(args.problems)
    if args.c_predictor is not None:
        found = [c_predictor_parity(folder, args.c_predictor)]
    elif args.ck_tile is not None and is_fmha(folder):
        found = [fmha_parity(folder, args.ck_tile, problems)]
    elif folder.is_file():
        raise ModelError(
            f"{folder} holds {what_is_read(folder)}; without a folder its features are unknown here, so only "
            "its trees can be compared: name a generated --c-predictor"
        )
    elif args.ck_tile is not None:
        found = _against_header(folder, args, problems)
    elif args.export is not None:
        found = own_export(folder, args.export, problems)
    else:
        with tempfile.TemporaryDirectory() as place:
            kernels, names = kernels_to_export(folder, args)
            done = export_model(folder, kernels, Path(place) / "export", names)
            found = own_export(folder, done.folder, problems)
    if args.json:
        print_json([{**asdict(one), "passed": one.passed} for one in found])
    else:
        print("\n".join(line for one in found for line in one.lines()))
    return status_of(found)


def _against_header(folder: Path, args: argparse.Namespace, problems: list[Problem]) -> list[Parity]:
    """Composable Kernel's header, a kind of problem at a time. Raises HarnessError."""
    if not args.kernels and not args.kernel_set and not kernels_trained_on(folder):
        args.kernel_set = DEFAULT_KERNEL_SET
    pools: dict[Kind, list[GemmKernel]] = {}
    for kernel in kernels_to_export(folder, args)[0]:
        if type(kernel) is not GemmKernel:
            raise ModelError(f"{HEADER.name} picks GEMM kernels, not {kernel.name}")
        pools.setdefault(kernel.kind, []).append(kernel)
    asked = {problem.kind for problem in problems} or set(pools)
    if lacking := [kind for kind in asked if kind not in pools]:
        raise ModelError(f"the pool has no kernel for {kind_text(lacking[0])}: name another with --kernels")
    return [
        ck_tile_parity(
            folder, args.ck_tile, pool, [p for p in problems if p.kind == kind] or problems_like(kind)
        )
        for kind, pool in pools.items()
        if kind in asked
    ]


def status_of(found: list[Parity]) -> int:
    """0 if something was compared and all of it agrees."""
    return 0 if found and all(one.passed for one in found) else 1
