"""`tile-oracle model export`: a model and its kernels as C++ that needs neither Python nor LightGBM.

Writes a folder with the model, its candidate kernels and C++ that picks among them: the same answers as
`tile-oracle pick --predictions`, bit for bit. Or compares what is deployed with the model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tile_oracle.commands.arguments import DEFAULT_KERNEL_SET, ONLY_JSON, show
from tile_oracle.commands.kinds import kernels_to_export, problems_of_arguments
from tile_oracle.errors import ModelError
from tile_oracle.model.store import folder_of_model, kernels_trained_on
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.selector.c_predictor import c_predictor_parity, model_text
from tile_oracle.selector.ck_tile_parity import HEADER, ck_tile_parity
from tile_oracle.selector.export import export_model, file_stem
from tile_oracle.selector.fmha_parity import fmha_parity, is_fmha
from tile_oracle.selector.parity import MOST_PROBLEMS, Parity, own_export, problems_like
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.documentation import page

EXAMPLES = f"""\
examples:
  tile-oracle model export grouped_conv_forward_bf16_gfx950 -o selector
  tile-oracle model export models/mine -o selector --kernel-set default
  make -C selector && selector/build/pick selector/forward_bf16_2d.selector N=8 C=64 K=64 Hi=56 Wi=56
  tile-oracle model export models/mine --check                  the model against an export made now
  tile-oracle model export gemm_universal_fp8_gfx950 --check --ck-tile ~/composablekernel --kernel-set default
  tile-oracle model export models/fmha_bf16_gfx950 --check --c-predictor model_tflops_bf16.c

--check compares every score and pick of the whole pool; the first that differ are named with both values.
Without problems, up to {MOST_PROBLEMS} of the shipped sets are taken, in the model's data type. The status
is 0 if all picks and scores are those of the model folder, else 1. {page("selector")} has more.
"""


ARGUMENTS = argument_table(f"""
model MODEL  model folder, or the name of one in models/ or of a shipped one
problems [PROBLEM...]  with --check: problem id, dimensions, a set's name or a file
-o --output DIR  folder to write
--kernel-set SET  the kernels of a rule set, for the model's problems
--kernels FILE  file of kernel names, one per line; without --kernel-set
a deployed picker:
--check  ask the picker and the model for every kernel, and compare all that they say; without --output
--export PLACE  with --check: what was exported: the folder, or a .selector file
--ck-tile DIR  with --check: the dispatcher's C++ heuristic (ml_heuristic.hpp, or that of attention) in a
    checkout of Composable Kernel; without --export
--c-predictor FILE  with --check: a C file of the model's trees, as rocKE's; MODEL may be a LightGBM file;
    without --export, --ck-tile, --kernels or --kernel-set
--json  with --check: print the counts and first differences {ONLY_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Writes the folder, or compares; the exit status. Raises HarnessError."""
    if args.check:
        return _check(args)
    if args.output is None:
        raise ModelError("name the folder to write with -o, or what is deployed with --check")
    folder = folder_of_model(args.model)
    kernels, names = kernels_to_export(folder, args)
    done = export_model(folder, kernels, args.output, names)
    for line in names.remarks() if names is not None else ():
        print(line, file=sys.stderr)
    for kind, count in done.kernels.items():
        print(f"{done.folder / file_stem(kind)}.selector: {kind_text(kind)}, {count:,} kernels")
    print(f"{done.bytes / 1e6:.1f} MB; build it with: make -C {done.folder}")
    return 0


def _check(args: argparse.Namespace) -> int:
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
    document = [{**asdict(one), "passed": one.passed} for one in found]
    passed = found and all(one.passed for one in found)
    return show(args, document, [line for one in found for line in one.lines()], 0 if passed else 1)


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
