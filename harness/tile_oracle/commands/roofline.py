"""`tile-oracle model roofline`: writes the analytic model of GEMM as a model folder."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.arch import known_archs
from tile_oracle.commands.arguments import argument, json_flag
from tile_oracle.commands.json_output import print_json
from tile_oracle.errors import ModelError
from tile_oracle.terminal.text_table import text_table

if TYPE_CHECKING:
    from tile_oracle.model.roofline import RooflineModel

EXAMPLES = """\
examples:
  tile-oracle model roofline -o models/gemm_roofline --arch sm_90
  tile-oracle model evaluate models/gemm_roofline reports/my_run         judge it
  tile-oracle model roofline -o models/fitted --arch sm_90 --fit reports/my_run
                                            with constants fitted to records, also those of other dtypes

`pytest --model roofline` judges it without a folder.
"""


ABOUT = (
    "Writes a model folder that predicts the time of a GEMM kernel of any source from its tile and from\n"
    "the peak rates of the architecture (docs/gemm.md)."
)
ARGUMENTS = (
    argument("-o --out", "FOLDER", "the folder to write", type=Path, required=True),
    argument("--arch", None, f"of {', '.join(known_archs())}", required=True),
    argument("--dtype", None, "data type", default="bf16"),
    argument(
        "--fit",
        "RECORDS",
        "fit the constants to these records (may be repeated; default: the shipped constants)",
        action="append",
        type=Path,
        default=[],
    ),
    json_flag("the constants"),
)


def run(args: argparse.Namespace) -> int:
    """Writes the folder and prints its constants. Raises ModelError, RecordError, RuleError."""
    from tile_oracle.model.roofline import RooflineModel
    from tile_oracle.model.roofline_folder import roofline_files
    from tile_oracle.model.store import write_folder

    model = RooflineModel(args.arch)
    files = roofline_files("gemm", args.dtype, model)  # also checks architecture and data type
    if args.fit:
        model = _fitted(args.arch, args.fit)
        files = roofline_files("gemm", args.dtype, model, [path.name for path in args.fit])
    write_folder(args.out, files)
    if args.json:
        print_json({"folder": str(args.out), **model.as_json()})
        return 0
    print(_described(model))
    print(f"{args.out}: the roofline model of GEMM in {args.dtype} on {args.arch}")
    return 0


def _fitted(arch: str, paths: list[Path]) -> RooflineModel:
    from tile_oracle.model.roofline_fit import fit_roofline
    from tile_oracle.record.dataset import load_records
    from tile_oracle.record.final import records_op
    from tile_oracle.training.training_rows import training_rows

    records = load_records(paths)
    if records_op(records) != "gemm":
        raise ModelError(f"--fit {paths[0]}: these are records of {records_op(records)}, not of gemm")
    of_arch = records[records["arch"].astype(str) == arch]
    if of_arch.empty:
        raise ModelError(f"--fit {paths[0]}: no record is of {arch}")
    return fit_roofline(training_rows(of_arch).table, arch)


def _described(model: RooflineModel) -> str:
    shared = [f"  {name} {value:.3g}" for name, value in asdict(model.shared).items()]
    engines = {name: asdict(engine) for name, engine in model.engines.items()}
    names = list(next(iter(engines.values())))
    rows = [("engine", *names)]
    rows += [(name, *(f"{one[column]:.3g}" for column in names)) for name, one in engines.items()]
    return "\n".join(["shared constants:", *shared, "", *text_table(rows, range(1, len(names) + 1))])
