"""The options --aiter and --cu-num: picks as rows of a tuned table of AITER."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import cast

from tile_oracle.arch import load_arch
from tile_oracle.commands.arguments import argument
from tile_oracle.commands.json_output import write_text
from tile_oracle.errors import ModelError, ProblemError
from tile_oracle.files.user_file import read_bytes
from tile_oracle.foreign.aiter import Winner, tuned_table
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem import Problem
from tile_oracle.registry import Pick

_MOST_BYTES = 64 << 20

AITER = (
    argument(
        "--aiter",
        "FILE",
        "also write the picks of GEMMs as a tuned table of AITER (CSV), into the one that there is",
        type=Path,
    ),
    argument("--cu-num", "N", "compute units in AITER's table (default: the architecture's)", type=int),
)


def winner(problem: Problem, first: Pick | None) -> Winner:
    """The pick as a row of a tuned table. Raises ModelError for what such a table cannot say."""
    if problem.op != GemmProblem.op:
        raise ModelError(f"--aiter: {problem.id} is not a GEMM, and AITER's tuned tables hold only GEMMs")
    tflops = first and (first.measured_tflops or first.predicted_tflops)
    if first is None or not tflops:
        raise ModelError(
            f"--aiter: the speed of the pick for {problem.id} is unknown: the model only orders kernels"
        )
    return Winner(cast(GemmProblem, problem), first.kernel.name, tflops)


def write_table(args: argparse.Namespace, winners: list[Winner], arch: str) -> None:
    """Writes the picks into AITER's table at --aiter. Raises HarnessError."""
    path, units = args.aiter, args.cu_num or load_arch(arch).hardware.num_cus
    try:
        before = read_bytes(path, _MOST_BYTES).decode("utf-8") if path.exists() else ""
    except (OSError, ValueError) as error:
        raise ModelError(f"--aiter: {path} cannot be read: {error}") from None
    try:
        text, kept = tuned_table(winners, arch, units, before)
    except ProblemError as error:
        raise ModelError(f"--aiter: {path}: {error}") from None
    write_text(path, text)
    for line in kept:
        print(f"--aiter: {line}", file=sys.stderr)
