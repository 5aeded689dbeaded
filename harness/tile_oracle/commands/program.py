"""The program `tile-oracle`: finds the subcommand, one of the modules beside this one, and runs it."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NoReturn, cast

from tile_oracle.commands.table import COMMANDS, GROUPS, Command, called_today, named_command
from tile_oracle.errors import HarnessError
from tile_oracle.process.optimized import refuse_missing_docstrings
from tile_oracle.terminal.argument_table import add_arguments
from tile_oracle.terminal.did_you_mean import did_you_mean, most_like
from tile_oracle.terminal.help_text import HelpFormatter
from tile_oracle.terminal.plain_text import OutputFailed, plain_output
from tile_oracle.terminal.progress_line import waits_shown_on
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


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the option or command that was meant."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Takes words behind options, too, for an argument that may be many. Refuses options that this parser
        does not know."""
        found, unknown = super().parse_known_args(args, namespace)
        many = [one for one in self._get_positional_actions() if one.nargs in ("*", "+")]
        if many and not any(word.startswith("-") for word in unknown):
            getattr(found, many[0].dest).extend(self._get_value(many[0], word) for word in unknown)
            return found, []
        if unknown:
            close = [meant for word in unknown if (meant := self._option_like(word))]
            hint = f"; did you mean {close[0]}?" if close else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _option_like(self, word: str) -> str | None:
        name = word.partition("=")[0]
        return most_like(name, self._option_string_actions, cutoff=0.7) if name.startswith("--") else None

    def error(self, message: str) -> NoReturn:
        """One line, without the usage, which would hide it."""
        self.exit(2, f"{self.prog}: {message}\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = [str(one) for one in action.choices or ()]
        if action.choices is None or value in action.choices:
            return
        if action.dest == "command":
            hint = did_you_mean(str(value), (*COMMANDS, *choices), f"`{self.prog} --help` lists the commands")
            raise argparse.ArgumentError(None, f"there is no command {str(value)[:100]!r}: {hint}")
        hint = did_you_mean(str(value), choices, f"one of {', '.join(choices)}")
        raise argparse.ArgumentError(action, f"unknown {str(value)[:100]!r}: {hint}")


def make_parser(only: Command | None = None) -> argparse.ArgumentParser:
    """Returns the parser. Of the commands' modules only that of `only` is imported."""
    parser = _Parser(prog="tile-oracle", description=_DESCRIPTION, formatter_class=HelpFormatter)
    parser.add_argument("--version", action="version", version=f"tile-oracle {__version__}")
    parser.epilog = "\n\n".join([*(f"{what}:\n{_overview(of)}" for what, of in GROUPS.items()), _FIRST_STEPS])
    places = {"": _commands_of(parser)}
    for command in COMMANDS.values():
        group, _, word = command.name.rpartition(" ")
        if group not in places:
            own = _overview(one for one in COMMANDS.values() if one.name.startswith(f"{group} "))
            place = _add(places[""], group, description=f"commands:\n{own}")
            places[group] = _commands_of(place)
        if command is not only:
            places[group].add_parser(word)
            continue
        module = command.load()
        sub = _add(places[group], word, description=module.__doc__ or "", epilog=module.EXAMPLES)
        add_arguments(sub, module.ARGUMENTS)
        sub.set_defaults(run=module.run)
    return parser


def _overview(commands: Iterable[Command]) -> str:
    return "\n".join(f"  {one.name:<14}  {one.line}" for one in commands)


def _commands_of(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return parser.add_subparsers(
        metavar="COMMAND", dest="command", required=True, help="one of those that --help lists"
    )


def _add(
    place: argparse._SubParsersAction[argparse.ArgumentParser], name: str, **text: str
) -> argparse.ArgumentParser:
    return place.add_parser(name, formatter_class=HelpFormatter, **cast(Any, text))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. A HarnessError, or a stdout that takes nothing, is one
    line on stderr and status 2."""
    interrupts = _noted_interrupts()
    given = called_today(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    named = named_command(given)
    try:
        with plain_output():
            try:
                return _run(given, named)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except (BrokenPipeError, OutputFailed) as error:
        # Python would report it again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # the reader (`| head`) has seen enough
        with suppress(OSError):
            print(f"{_called(named)}: standard output cannot be written: {error}", file=sys.stderr)
        return 2
    except BaseException as error:
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        module = named and sys.modules.get(named.module)
        goes_on = getattr(module, "GOES_ON", "the same command starts again")
        print(f"interrupted: {goes_on}", file=sys.stderr)
        return 130


def _noted_interrupts() -> list[int]:
    """Returns a list that gets an element at each Ctrl-C: a module whose import it breaks off may raise
    anything, or report it and go on."""
    noted: list[int] = []

    def interrupt(number: int, _: object) -> NoReturn:
        noted.append(number)
        sys.unraisablehook = lambda _: None
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # this is not the main thread, which gets all signals
            signal.signal(signal.SIGINT, interrupt)
    return noted


def _run(arguments: list[str], named: Command | None) -> int:
    try:
        refuse_missing_docstrings()
        # Only the named command's module is imported: `tile-oracle problems` need not wait for lightgbm.
        args = make_parser(named).parse_args(arguments)
        assert named is not None
        from tile_oracle.commands.arguments import check_arguments  # --help need not wait for msgspec

        check_arguments(named.load().ARGUMENTS, args)
        with _shown_progress(named):
            return int(args.run(args))
    except HarnessError as error:
        print(f"{_called(named)}: {error}", file=sys.stderr)
        return 2


def _called(named: Command | None) -> str:
    return "tile-oracle" if named is None else f"tile-oracle {named.name}"


def _shown_progress(command: Command) -> AbstractContextManager[None]:
    if sys.stderr is None:
        return nullcontext()
    return waits_shown_on(sys.stderr, "" if command.own_progress else f"tile-oracle {command.name}")
