"""`python -m tools.results`: makes the results page from the folders of the shipped models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.errors import ModelError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.model.store import shipped_models
from tools.command_line import run_tool
from tools.results.page import read_shipped, results_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `python -m tools.results`."""
    parser.description = (
        "Makes the results page (Markdown) from the JSON files of the model folders. For each direction: "
        "published metrics and ours."
    )
    parser.add_argument(
        "--models", metavar="FOLDER", type=Path, help="folder of model folders (default: the shipped ones)"
    )
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, help="the page (default: print it)")


def run(args: argparse.Namespace) -> int:
    """Prints or writes the page. Raises ModelError, GateError."""
    models = args.models or shipped_models()
    if not models.is_dir():
        raise ModelError(f"{models} is not a folder of models")
    page = results_page(read_shipped(models))
    if args.out is None:
        print(page, end="")
        return 0
    try:
        write_atomically(args.out, page.encode())
    except OSError as error:
        raise ModelError(f"cannot write {args.out}: {error.strerror}") from None
    print(args.out)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line; the result is the exit status."""
    return run_tool("results", add_arguments, run, words)


if __name__ == "__main__":
    sys.exit(main())
