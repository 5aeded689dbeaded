"""`tile-oracle model export`: a model and its kernels as C++ that needs neither Python nor LightGBM.

Writes a folder with the model, its candidate kernels and C++ that picks among them: the same answers as
`tile-oracle pick --predictions`, bit for bit. Or compares what is deployed with the model.
"""

from __future__ import annotations

import argparse
import sys

from tile_oracle.commands.arguments import ONLY_JSON, argument_table
from tile_oracle.commands.kernel_choice import kernels_to_export
from tile_oracle.commands.parity import check
from tile_oracle.errors import ModelError
from tile_oracle.model.store import folder_of_model
from tile_oracle.problem import kind_text
from tile_oracle.selector.export import export_model, file_stem
from tile_oracle.selector.parity import MOST_PROBLEMS
from tile_oracle.terminal.documentation import page

EXAMPLES = f"""\
examples:
  tile-oracle model export grouped_conv_forward_bf16_gfx950 -o selector
  tile-oracle model export models/mine -o selector
  tile-oracle model export models/mine -o selector --kernel-set default
  tile-oracle model export models/mine -o selector --kernels names.txt
  make -C selector && selector/build/pick selector/forward_bf16_2d.selector N=8 C=64 K=64 Hi=56 Wi=56
  tile-oracle model export models/mine --check                  the model against an export made now
  tile-oracle model export models/mine forward_validation_300 --check --export selector    made before
  tile-oracle model export gemm_universal_fp8_gfx950 --check --ck-tile ~/composablekernel --kernel-set default
  tile-oracle model export models/fmha_fwd_gfx950/model_tflops.lgbm --check --ck-tile ~/composablekernel
  tile-oracle model export models/fmha_bf16_gfx950 --check --c-predictor model_tflops_bf16.c

The kernels are those that the model was trained on, unless a rule set or a file of names (one per line) is
given. A file of names is the list of a dispatcher's own functions: names that the model cannot rank are
reported and never picked. The folder builds with any C++20 compiler and needs neither Python nor LightGBM;
its README.md explains how to use it.

--check compares every score and pick of the whole pool; the first that differ are named with both values.
Without problems, up to {MOST_PROBLEMS} of the shipped sets are taken, in the model's data type. The status
is 0 if all picks and scores are those of the model folder, else 1. {page("selector")} has more.
"""


ARGUMENTS = argument_table(f"""
model MODEL  model folder, or the name of one in models/ or of a shipped one
problems [PROBLEM...]  --check: problem id, dimensions, a set's name or a file
-o --output DIR  folder to write
--kernel-set SET  the kernels of a rule set, for the model's problems
--kernels FILE  file of kernel names, one per line
a deployed picker:
--check  ask the picker and the model for every kernel, and compare all that they say
--export PLACE  what was exported: the folder, or a .selector file
--ck-tile DIR  the dispatcher's C++ heuristic (ml_heuristic.hpp, or that of attention) in a checkout of
    Composable Kernel
--c-predictor FILE  a C file made from the model's trees, such as rocKE's; MODEL may be a LightGBM file
--json  print the counts and first differences {ONLY_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Writes the folder, or compares; the exit status. Raises HarnessError."""
    if args.check:
        return check(args)
    if args.output is None:
        raise ModelError("name the folder to write with -o, or what is deployed with --check")
    if args.kernel_set and args.kernels:
        raise ModelError("--kernel-set and --kernels both name the kernels: leave one out")
    folder = folder_of_model(args.model)
    kernels, names = kernels_to_export(folder, args)
    done = export_model(folder, kernels, args.output, names)
    for line in names.remarks() if names is not None else ():
        print(line, file=sys.stderr)
    for kind, count in done.kernels.items():
        print(f"{done.folder / file_stem(kind)}.selector: {kind_text(kind)}, {count:,} kernels")
    print(f"{done.bytes / 1e6:.1f} MB; build it with: make -C {done.folder}")
    return 0
