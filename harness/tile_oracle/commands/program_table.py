"""The best kernels of GEMMs as a table that another program loads: --output with --format."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import cast

import pandas as pd

from tile_oracle.arch import load_arch
from tile_oracle.commands.arguments import write_text
from tile_oracle.errors import ModelError, ProblemError, RecordError
from tile_oracle.files.user_file import read_bytes
from tile_oracle.foreign.aiter import Winner, tuned_table
from tile_oracle.foreign.autotune import lookup_table
from tile_oracle.foreign.tunable_op import results_file
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements
from tile_oracle.registry import Pick

_MOST_BYTES = 64 << 20
_SOURCES = {"tunableop": ("hipblaslt", "rocblas"), "inductor": ("inductor",)}
"""Format -> the sources whose kernels it can name. AITER's table takes any name."""

_CU_NUM = "--cu-num N  with --format aiter: compute units in the table (default: the architecture's)"
PICKS = f"""\
-o --output TABLE  with --format: also write the picks of GEMMs there, into the file if there is one
--format aiter  with --output: AITER's tuned table (CSV)
{_CU_NUM}"""
OUTPUT = f"""\
-o --output TABLE  with --format: write the best kernels of GEMMs there, into the file if there is one
--format {"|".join(("aiter", *_SOURCES))}  with --output: AITER's tuned table, results of PyTorch's
    TunableOp, or Inductor's lookup table
{_CU_NUM}"""


def _gemm(problem: Problem) -> GemmProblem:
    if problem.op != GemmProblem.op:
        raise ModelError(f"{problem.id} is not a GEMM, and AITER's and PyTorch's tables hold only GEMMs")
    return cast(GemmProblem, problem)


def winner(problem: Problem, first: Pick | None) -> Winner:
    """Returns the pick as a row of a table. Raises ModelError for what such a table cannot say."""
    gemm = _gemm(problem)
    if first is None or not first.predicted_tflops:
        raise ModelError(f"the speed of the pick for {problem.id} is unknown: the model only orders kernels")
    return Winner(gemm, first.kernel.name, first.predicted_tflops)


def winners_of_records(runs: list[str], form: str) -> tuple[list[Winner], str]:
    """Returns the oracles of runs among the kernels that a format can name, and their architecture. Raises
    RecordError for runs of several architectures, or without such a kernel, ModelError for other problems."""
    records = load_records([Path(run) for run in runs])
    named = records["kernel"].astype(str)
    sources = _SOURCES.get(form, ())
    own = records[named.str.contains(rf"_(?:{'|'.join(sources)})\.") if sources else named != ""]
    archs = sorted(own["arch"].dropna().unique())
    if len(archs) != 1:
        what = f"kernels of {' or '.join(sources)}" if sources else "records"
        raise RecordError(f"a table is of one architecture; these runs have {what} of {archs or 'none'}")
    found = find_oracles(final_measurements(pd.DataFrame(own))).to_dict("records")
    return [
        Winner(_gemm(problem_from_id(one["problem"])), one["oracle_kernel"], one["oracle_tflops"])
        for one in found
        if isinstance(one["oracle_kernel"], str)
    ], archs[0]


def write_table(args: argparse.Namespace, winners: list[Winner], arch: str) -> None:
    """Writes the picks into the table that the options name. Raises HarnessError."""
    form, path = args.format, args.output
    try:
        before = read_bytes(path, _MOST_BYTES).decode("utf-8") if path.exists() else ""
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    try:
        if form == "aiter":
            units = args.cu_num or load_arch(arch).hardware.num_cus
            text, kept = tuned_table(winners, arch, units, before)
        else:
            text, kept = (results_file if form == "tunableop" else lookup_table)(winners, before)
    except ProblemError as error:
        raise ModelError(f"{path}: {error}") from None
    write_text(path, text)
    for line in kept:
        print(f"{path}: {line}", file=sys.stderr)
