"""The command `tile-oracle`: a thin door to the modules of harness.commands."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from harness.errors import HarnessError
from harness.version import __version__

_DESCRIPTION = """\
tile-oracle finds out whether the model that picks a GPU kernel for a problem picks well.

Measuring is done by pytest:  pytest --problem-set forward_smoke
(see `pytest --help`, group tile-oracle). The commands below look at problem sets, kernels and runs,
build kernels ahead of time, and train and question models.
"""


class Command(Protocol):
    """What a module of harness.commands offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit status."""


_COMMANDS = {
    "problems": "list and describe problem sets",
    "kernels": "list, count and explain kernels and why some are refused",
    "doctor": "show what this machine can run, what is missing, and how to get it",
    "build": "compile a pool ahead of time into a folder for another machine",
    "train": "train a model from recorded measurements",
    "report": "make the report of a run again",
    "crawl": "make problem sets from the architectures of torchvision and timm",
}
"""Command -> one line for the overview. The module of the same name has the rest."""


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser; with `only`, a single command's module is imported."""
    parser = argparse.ArgumentParser(
        prog="tile-oracle", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"tile-oracle {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, line in _COMMANDS.items():
        if only is not None and name != only:
            commands.add_parser(name, help=line)
            continue
        module = command_module(name)
        sub = commands.add_parser(
            name, help=line, description=module.HELP, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def command_names() -> tuple[str, ...]:
    """Every command, in the order of the overview."""
    return tuple(_COMMANDS)


def command_module(name: str) -> Command:
    """The module behind a command."""
    return cast(Command, importlib.import_module("harness.commands." + name.replace("-", "_")))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. A user's error is one line on stderr and status 2."""
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Python would complain when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    # Only the named command's module is imported: `tile-oracle problems` need not wait for lightgbm.
    named = next((word for word in arguments if word in _COMMANDS), None)
    args = make_parser(named).parse_args(arguments)
    try:
        return int(args.run(args))
    except HarnessError as error:
        print(f"tile-oracle {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
