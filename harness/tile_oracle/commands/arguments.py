"""The arguments that several commands share, as rows of an `argument_table`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tile_oracle.errors import BuildError, RuleError

DEFAULT_KERNEL_SET = "default"
"""The kernel set where none is given."""

RECORDS_HELP = "a run's folder, or a parquet file of records"
PROBLEM_HELP = """problem id, dimensions (N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1), a set's name
    or a file of problems"""
AS_JSON = "as JSON: printed instead of the text or, given a FILE, written there"
ONLY_JSON = "as JSON, and nothing else"
BUILD_DIR = "--build-dir DIR  cache of compiled kernels (default: the user's)"
CK_TILE = """\
--ck-tile DIR  on AMD's GPUs: CK Tile's own kernels, from a checkout of Composable Kernel or a ROCm install
    (--kernels ck_tile=DIR)"""
KERNELS = """\
--kernels SOURCE  kernels that are written in Triton: a Python file that declares them (tile_oracle.triton),
    or triton: those that ship; an installed kernel source, NAME or NAME=ARGUMENT; or a .json file of
    --kernel-set, such as a list of `pool portfolio`"""
TOOLCHAIN = """\
--toolchain NAME=auto  auto, ziglang, clang++ or a compiler's path; on cpu also g++, for AMD's GPUs rocm and
    hipcc, for sm_90 nvcc"""


def take_source(args: argparse.Namespace, ck_tile: Path | None = None) -> str:
    """NAME[=ARGUMENT] of the source that --kernels names, or --ck-tile. A .json file of --kernels becomes
    --kernel-set, which reads it. Raises HarnessError for more or other than one source that is compiled."""
    from tile_oracle.session.kernels_option import read_kernels

    given = read_kernels(args.kernels or "", Path.cwd(), ck_tile)
    if given.kernel_set is not None:
        if args.kernel_set not in (None, DEFAULT_KERNEL_SET):
            raise RuleError(f"--kernels {args.kernels} and --kernel-set {args.kernel_set}: leave one out")
        args.kernel_set = given.kernel_set
    elif given.libraries or len(given.sources) != 1 or given.sources[0].startswith("native="):
        raise BuildError(f"--kernels {args.kernels}: give one source whose kernels can be compiled")
    return given.sources[0]
