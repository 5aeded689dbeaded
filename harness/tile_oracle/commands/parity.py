"""`tile-oracle model export --check`: whether a deployed picker picks what its model folder picks."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from tile_oracle.commands.arguments import DEFAULT_KERNEL_SET
from tile_oracle.commands.json_output import print_json
from tile_oracle.commands.kernel_choice import kernels_to_export
from tile_oracle.commands.problem_arguments import problems_of_arguments
from tile_oracle.errors import ModelError
from tile_oracle.model.store import folder_of_model, kernels_trained_on
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.selector.c_predictor import c_predictor_parity, model_text
from tile_oracle.selector.ck_tile_parity import HEADER, ck_tile_parity
from tile_oracle.selector.export import export_model
from tile_oracle.selector.fmha_parity import fmha_parity, is_fmha
from tile_oracle.selector.parity import Parity, own_export, problems_like


def check(args: argparse.Namespace) -> int:
    """Prints what differs; 1 if anything does. Raises HarnessError."""
    folder, problems = folder_of_model(args.model), problems_of_arguments(args.problems)
    if args.c_predictor is not None:
        found = [c_predictor_parity(folder, args.c_predictor)]
    elif args.ck_tile is not None and is_fmha(folder):
        found = [fmha_parity(folder, args.ck_tile, problems)]
    elif folder.is_file():
        where, _ = model_text(folder)
        raise ModelError(
            f"{where} is no model folder, so its features are unknown here, and only its trees can be "
            "compared: name a generated --c-predictor"
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
