"""`tile-oracle runs suggest`: which pairs to measure next.

The most informative pairs: an ensemble is unsure of them, or a model picks them.
"""

from __future__ import annotations

import argparse

from tile_oracle.arch import load_arch
from tile_oracle.commands.arguments import ONLY_JSON, put_text, show
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.folder_model import FolderModel, pool_of
from tile_oracle.exploration.suggest import suggest, suggest_adapting, suggest_picks
from tile_oracle.features.code_table import CodeTable
from tile_oracle.files.spreadsheet import safe_cell
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import folder_of_model
from tile_oracle.problem_set import load_problem_set
from tile_oracle.process.cores import usable_cores
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import problems_of
from tile_oracle.terminal.argument_table import argument_table

EXAMPLES = """\
examples:
  tile-oracle runs suggest measured.parquet --budget 100
  tile-oracle runs suggest measured.parquet --model models/mine --budget 9000 --csv next.csv
  tile-oracle runs suggest measured.parquet --model models/mine --adapt --budget 200 --csv few.csv

The kernels are those of the records; the problems are those of the records or of a problem set. A pair is
worth measuring when it may be faster than its problem's best so far, by models fitted to the records.
With --model, a trained model names the unmeasured pairs that it would pick: the first pick of every problem,
then the second of every problem, and so on. With --adapt, it names those that `model train --adapt` learns
most from: its first picks of the problems that have the most kernels of many problems among them.
"""


ARGUMENTS = argument_table(f"""
records RECORDS...  what is measured already
--budget N=50  pairs
--problem-set NAME  set or file of problems to choose from
--model MODEL  suggest the first unmeasured picks of this model
--adapt  with --model: the pairs that `model train --adapt` learns most from
--seed N=0  seed of the resampling
--csv FILE  write the pairs as CSV; - prints it
--json  print the pairs {ONLY_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Prints the pairs. Raises RecordError, ProblemSetError, ModelError."""
    records = load_records(args.records)
    archs = sorted(records["arch"].dropna().unique())
    if len(archs) != 1:
        raise ModelError(
            f"the records are of {len(archs)} architectures: {', '.join(archs) or 'none is named'}"
        )
    problems = load_problem_set(args.problem_set).problems if args.problem_set else problems_of(records)
    kernels = [parse_kernel_name(str(name)) for name in sorted(records["kernel"].unique())]
    if args.model:
        model = FolderModel(
            folder_of_model(args.model), len(problems) * len(kernels), CodeTable.of(records), usable_cores()
        )
        if (of := read_spec(model.folder).arch) != archs[0]:
            raise ModelError(f"{args.model} is of {of}, the records are of {archs[0]}")
        arch, matching = load_arch(of), pool_of(kernels)
        rankings, origin = model.rank(problems, lambda problem: arch.able(matching(problem), problem))
        if rankings is None:
            raise ModelError(f"{args.model}: {origin.detail}")
        choose = suggest_adapting if args.adapt else suggest_picks
        table = choose(records, rankings, args.budget)
    else:
        table = suggest(records, archs[0], problems, kernels, args.budget, args.seed)
    if args.csv:
        words = table.select_dtypes(exclude="number").columns
        cells = {name: [safe_cell(str(text)) for text in table[name]] for name in words}
        put_text(args.csv, table.assign(**cells).to_csv(index=False))
    pairs = table.to_dict("records")
    lines = [f"{row['rank']:>4}  {row['problem']}  {row['kernel']}" for row in pairs]
    return show(args, pairs, ["rank  problem and kernel", *lines])
