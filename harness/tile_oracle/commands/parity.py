"""`tile-oracle model parity`: whether a deployed picker picks what its model folder picks."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from tile_oracle.commands.arguments import argument, json_flag, one_of
from tile_oracle.commands.export import kernels_to_export
from tile_oracle.commands.json_output import print_json
from tile_oracle.commands.problem_arguments import problems_of_arguments
from tile_oracle.model.store import folder_of_model
from tile_oracle.selector.export import export_model
from tile_oracle.selector.parity import MOST_PROBLEMS, Parity, own_export

EXAMPLES = f"""\
examples:
  tile-oracle model parity grouped_conv_forward_bf16_gfx950     the model against an export made now
  tile-oracle model parity models/mine --export selector        against a folder that was exported before
  tile-oracle model parity models/mine forward_validation_300 --export selector/forward_bf16_2d.selector

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
    one_of(
        argument("--kernel-set", "SET", "the kernels of a rule set, for an export made now"),
        argument("--kernels", "FILE", "file of kernel names, one per line, for an export made now"),
    ),
    json_flag("the counts and first differences"),
)


def run(args: argparse.Namespace) -> int:
    """Prints what differs; 1 if anything does. Raises HarnessError."""
    folder, problems = folder_of_model(args.model), problems_of_arguments(args.problems)
    if args.export is not None:
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


def status_of(found: list[Parity]) -> int:
    """0 if something was compared and all of it agrees."""
    return 0 if found and all(one.passed for one in found) else 1
