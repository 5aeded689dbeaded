"""`tile-oracle new`: a small, commented, running example to start from, outside of tile-oracle.

operation NAME is a package in the folder NAME: an operation on the rows of a matrix, with its problem,
reference, kernels in C++ for the CPU, a problem set and a test. kernels FILE is a file of kernels in
Triton, with a small problem set beside it. Nothing that exists is overwritten.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from tile_oracle.commands.skeletons import KERNELS, OPERATION
from tile_oracle.errors import OperationError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.operation import operation_names
from tile_oracle.operation.field_names import RECORD_COLUMNS
from tile_oracle.terminal.argument_table import argument_table

EXAMPLES = """\
examples:
  tile-oracle new operation layer_norm     a folder: install it, and run its test
  tile-oracle new kernels my_kernels.py    my_kernels.py and my_kernels.csv
"""
ARGUMENTS = argument_table("""
what operation|kernels  what to write
name NAME  the operation's name, or the Python file to write
""")


def run(args: argparse.Namespace) -> int:
    """Writes the files and prints what to do with them. Raises OperationError."""
    if args.what == "kernels":
        path = Path(args.name)
        if path.suffix != ".py" or not path.stem.isidentifier():
            raise OperationError(f"{args.name} is no name of a Python file: write my_kernels.py")
        _write(path.parent, path.stem, KERNELS)
        _say(
            f"pytest --problem-set {path.with_suffix('.csv')} --kernels {path} --target interpret "
            "--allow not-timed"
        )
        return 0
    name = args.name
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or name in RECORD_COLUMNS:
        raise OperationError(f"{name!r} is no name of an operation: use small letters, as in layer_norm")
    if name in operation_names():
        raise OperationError(f"there is an operation {name} already: choose another name")
    _write(Path(name), name, OPERATION)
    _say(f"pip install -e {name}", f"pytest {name}", f"pytest --problem-set {name}/{name}.csv --target cpu")
    return 0


def _write(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """Raises OperationError for a file that exists or cannot be written."""
    words = {"NAME": name, "CLASS": "".join(part.title() for part in name.split("_"))}

    def filled(text: str) -> str:
        return re.sub("NAME|CLASS", lambda found: words[found[0]], text)

    made = {folder / filled(path): filled(text) for path, text in files.items()}
    for path in made:
        if path.exists():
            raise OperationError(f"{path} exists already: nothing was written")
    for path, text in made.items():
        with disk_errors_as(OperationError, f"{path} cannot be written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        print(path)


def _say(*commands: str) -> None:
    print("\nnext:")
    for command in commands:
        print(f"  {command}")
