"""Options that several commands have, declared once."""

from __future__ import annotations

import argparse
from pathlib import Path

from tile_oracle.errors import RuleError

DEFAULT_KERNEL_SET = "default"
"""The kernel set where none is given."""


def add_build_dir(parser: argparse.ArgumentParser) -> None:
    """The cache of compiled kernels."""
    parser.add_argument(
        "--build-dir", type=Path, metavar="DIR", help="cache of compiled kernels (default: the user's)"
    )


def add_kernels(parser: argparse.ArgumentParser) -> None:
    """Kernels of a user's own."""
    parser.add_argument(
        "--kernels",
        metavar="FILE",
        help="kernels that are written in Triton: a Python file that declares them (tile_oracle.triton), or "
        "triton: those that ship; or a .json file of --kernel-set, such as a list of `portfolio`",
    )


def take_kernel_list(args: argparse.Namespace) -> None:
    """Moves a .json file of --kernels to --kernel-set, which reads it. A list of kernels in Triton alone is
    about those that ship. Raises RuleError if both options are given."""
    if args.kernels is None or not args.kernels.endswith(".json"):
        return
    if args.kernel_set != DEFAULT_KERNEL_SET:
        raise RuleError(f"--kernels {args.kernels} and --kernel-set {args.kernel_set}: leave one out")
    from tile_oracle.pool import sources_of_list

    native, _ = sources_of_list(args.kernels)
    args.kernels, args.kernel_set = None if native else "triton", args.kernels


def add_toolchain(parser: argparse.ArgumentParser) -> None:
    """The compiler of the kernels."""
    parser.add_argument(
        "--toolchain",
        default="auto",
        metavar="NAME",
        help="auto, ziglang, clang++ or a compiler's path; on cpu also g++, for AMD's GPUs rocm and hipcc, "
        "for sm_90 nvcc (default: %(default)s)",
    )


def add_records(parser: argparse.ArgumentParser) -> None:
    """Sources of records."""
    parser.add_argument(
        "records",
        nargs="+",
        type=Path,
        metavar="RECORDS",
        help="a run's folder, or a parquet file of records",
    )


def add_training(parser: argparse.ArgumentParser, folds: int = 5, without_recipe: str = "") -> None:
    """Training settings. without_recipe: what the command does without --recipe, if it is not the best known
    recipe."""
    from tile_oracle.training.recipe import RECIPES, SUITED

    parser.add_argument(
        "--recipe",
        choices=sorted(RECIPES),
        metavar="RECIPE",
        help=f"features, target and training settings (default: {without_recipe or SUITED})",
    )
    parser.add_argument(
        "--folds", type=int, default=folds, metavar="N", help="cross-validation folds (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="same records and seed: same model bytes (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads of LightGBM (default: %(default)s)"
    )
