"""The command `tile-oracle`; the subcommands are modules of tile_oracle.commands."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, cast

from tile_oracle.errors import HarnessError
from tile_oracle.terminal.did_you_mean import did_you_mean, most_like
from tile_oracle.terminal.help_text import HelpFormatter
from tile_oracle.terminal.plain_text import OutputFailed, plain_output
from tile_oracle.terminal.progress_line import never_silent, waits_shown_on
from tile_oracle.version import __version__

_DESCRIPTION = """\
tile-oracle tests how well a model picks GPU kernels.

pytest runs the measurements:  pytest --problem-set forward_smoke
(see `pytest --help`, group tile-oracle). The commands below prepare and collect measurements, show problem
sets, kernels and runs, and train, judge and use models.
"""


_FIRST_STEPS = """\
first steps:
  tile-oracle doctor                      what this machine can measure
  tile-oracle problems                    the problem sets that come with it
  pytest --problem-set forward_validation_300 --target replay    judge a shipped model, without a device
  tile-oracle COMMAND --help              a command's options, with examples
"""


class Command(Protocol):
    """What a module of tile_oracle.commands offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Runs the command and returns the exit status. Raises HarnessError."""


_GROUPS: dict[str, dict[str, str]] = {
    "Measure": {
        "doctor": "show what this machine can run, what is missing, and how to get it",
        "build": "compile kernels ahead of time into a folder that another machine can use",
        "cache": "show what the cache of compiled kernels holds, and remove what is no longer used",
        "import": "convert published CSV or JSON results and benchmark logs into records",
        "export-records": "write records as Kernel Tuner's cache files or as T4 results",
        "merge": "merge the records of several runs and machines into one file",
        "night": "measure and judge by night, from a scheduler: resumes, keeps baselines and a history",
        "oracle": "make the oracle file that sessions replay from recorded measurements",
    },
    "Look": {
        "problems": "list the problem sets, describe some of them, or convert a file of problems to CSV",
        "kernels": "list and count the kernels of a rule set, explain refusals and names",
        "report": "make the report of a run again from its parquet files",
        "history": "show all runs of a folder over time: figures, what changed, and steps told from noise",
        "features": "list the feature schemas, or compute the features of a problem and a kernel",
    },
    "Train and judge": {
        "train": "train a model that picks kernels, from recorded measurements",
        "roofline": "write the analytic model of GEMM, which needs no measurements, as a model folder",
        "portfolio": "choose the few kernels of a pool that come closest to all of them",
        "evaluate": "judge a model's picks by recorded measurements",
        "compare": "compare two runs, oracle files or baselines by their times, or two models",
        "retrain-check": "validate the current model, train a new one, validate it, compare",
        "suggest": "name the pairs to measure next, from the records so far",
        "search": "search an architecture's kernels for those that a model expects to be fast",
    },
    "Ship and use": {
        "ship": "train a model on records and put model, oracle and baseline into one folder",
        "seal": "write SHA-256 digests of model folders' files, so that damage to them is noticed",
        "export": "write a model and its kernels as C++ sources that pick in microseconds",
        "predict": "rank the kernels for a problem with a model",
        "pick": "pick the kernel for a problem: tuned, by a model, or by measuring",
        "tune": "measure the pool for problems and keep the best kernels for picking",
    },
}
"""Group -> command -> its line in the overview. The module of that name has the rest."""

_COMMANDS = {name: line for group in _GROUPS.values() for name, line in group.items()}

_MODULES = {"import": "import_records"}  # `import` is a Python keyword


_GOES_ON = {
    "build": "what is compiled is in the cache, and the same command goes on from there",
    "kernels": "what is compiled is in the cache, and the same command goes on from there",
    "cache": "what was removed stays removed; the same command goes on",
    "night": "the same command continues this night",
    "tune": "what was measured is kept; with --problem-set the same command goes on from there",
    "export-records": "files that were written stay; the same command writes all of them",
    "seal": "folders that were sealed stay sealed; the same command seals the others",
}
"""Command -> what becomes of its work after Ctrl-C. The others start again."""

_OWN_PROGRESS = ("night", "ship")
"""Commands whose pytest writes to the same terminal."""

_TOOLS = ("crawl", "results", "study", "ablation")
"""Commands of earlier versions that are now tools of a checkout."""


_SHELLS = ("bash", "zsh", "tcsh")


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the option or command that was meant."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Refuses options that this parser does not know."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            close = [meant for word in unknown if (meant := self._option_like(word))]
            hint = f"; did you mean {close[0]}?" if close else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _option_like(self, word: str) -> str | None:
        name = word.partition("=")[0]
        return most_like(name, self._option_string_actions, cutoff=0.7) if name.startswith("--") else None

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.dest == "command" and value not in _COMMANDS:
            hint = did_you_mean(str(value), _COMMANDS, "`tile-oracle --help` lists the commands")
            raise argparse.ArgumentError(None, f"there is no command {str(value)[:100]!r}: {hint}")
        super()._check_value(action, value)


def make_parser(only: str | None = None, *, whole: bool = False) -> argparse.ArgumentParser:
    """The parser. Of the commands' modules only that of `only` is imported; whole: all of them."""
    parser = _Parser(prog="tile-oracle", description=_DESCRIPTION, formatter_class=HelpFormatter)
    parser.add_argument("--version", action="version", version=f"tile-oracle {__version__}")
    parser.add_argument(
        "--print-completion", choices=_SHELLS, help="print a completion script for this shell (docs/usage.md)"
    )
    groups = (
        f"{what}:\n" + "\n".join(f"  {name:<14}  {line}" for name, line in group.items())
        for what, group in _GROUPS.items()
    )
    parser.epilog = "\n\n".join([*groups, _FIRST_STEPS])
    commands = parser.add_subparsers(
        metavar="COMMAND", dest="command", required=True, help="one of those below"
    )
    for name in _COMMANDS:
        if name != only and not whole:
            commands.add_parser(name)
            continue
        module = command_module(name)
        text = {"description": module.HELP, "formatter_class": HelpFormatter}
        if whole:
            text["help"] = _COMMANDS[name]  # shtab completes the commands that have it; --help has groups
        sub = commands.add_parser(name, **cast(Any, text))
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def command_names() -> tuple[str, ...]:
    """All commands, in the order of the overview."""
    return tuple(_COMMANDS)


def command_module(name: str) -> Command:
    """The module of a command."""
    module = _MODULES.get(name, name.replace("-", "_"))
    return cast(Command, importlib.import_module("tile_oracle.commands." + module))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. A HarnessError, or a stdout that takes nothing, is one
    line on stderr and status 2."""
    given = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    named = next((word for word in given if word in _COMMANDS), "")
    try:
        with plain_output():
            try:
                return _run(given)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except (BrokenPipeError, OutputFailed) as error:
        # Python would report it again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # the reader (`| head`) has seen enough
        with suppress(OSError):
            name = f"tile-oracle {named}".rstrip()
            print(f"{name}: standard output cannot be written: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted: {_GOES_ON.get(named, 'the same command starts again')}", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in _TOOLS:
        print(
            f"tile-oracle {arguments[0]}: run `python -m tools.{arguments[0]}` in a checkout of the project",
            file=sys.stderr,
        )
        return 2
    if arguments and arguments[0].startswith("--print-completion"):
        return _print_completion(arguments)
    # Only the named command's module is imported: `tile-oracle problems` need not wait for lightgbm.
    named = next((word for word in arguments if word in _COMMANDS), None)
    args = make_parser(named).parse_args(arguments)
    try:
        with _shown_progress(args.command):
            return int(args.run(args))
    except HarnessError as error:
        print(f"tile-oracle {args.command}: {error}", file=sys.stderr)
        return 2


@contextmanager
def _shown_progress(command: str) -> Iterator[None]:
    if sys.stderr is None:
        yield
    elif command in _OWN_PROGRESS:
        with waits_shown_on(sys.stderr):
            yield
    else:
        with waits_shown_on(sys.stderr), never_silent(f"tile-oracle {command}", sys.stderr):
            yield


def _print_completion(arguments: Sequence[str]) -> int:
    """Prints the completion script of every command and option."""
    import shtab

    asked = argparse.ArgumentParser(prog="tile-oracle", add_help=False)
    asked.add_argument("--print-completion", choices=_SHELLS, required=True)
    print(shtab.complete(make_parser(whole=True), asked.parse_args(arguments).print_completion))
    return 0


if __name__ == "__main__":
    sys.exit(main())
