"""A session's own command line, to be run again with something added."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest

from tile_oracle.session.outcome import Outcome

RESUME = "--resume"
_NAMES = ("--run-name", "--tile-oracle-run-name")
_FLAGS = (RESUME, "--update-baseline")


_SHOWING = frozenset(("-h", "--help", "-V", "--version", "--markers", "--fixtures", "--funcargs")) | {
    *("--fixtures-per-test", "--cache-show", "--collect-only", "--co", "--setup-plan")
}
"""Options of pytest that run no test."""
_STATUS = pytest.StashKey[int]()


def only_shows(config: pytest.Config) -> bool:
    """Returns whether this command line itself, not a variable or a file, asks pytest only to show
    something."""
    return not _SHOWING.isdisjoint(config.invocation_params.args)


def decide_status(config: pytest.Config, status: int) -> None:
    """Sets the exit status that nothing may turn into a pass."""
    config.stash[_STATUS] = status


def is_decided(config: pytest.Config) -> bool:
    """Returns whether the session came to its end."""
    return _STATUS in config.stash


def final_status(config: pytest.Config) -> int:
    """Returns the exit status in place of a 0: what was decided, and if nothing was, that nothing was
    measured."""
    return 0 if only_shows(config) else config.stash.get(_STATUS, int(Outcome.NOTHING_MEASURED))


class CommandLine:
    """arguments: those of pytest. replayed: nothing was measured, so nothing can be resumed."""

    def __init__(self, arguments: Sequence[str], *, replayed: bool) -> None:
        self._arguments = list(arguments)
        self._replayed = replayed

    def with_options(self, *options: str) -> str:
        """Returns the command, quoted for a shell."""
        added = [option for option in options if option not in _FLAGS or option not in self._arguments]
        return shlex.join(["pytest", *self._kept(), *added])

    def _kept(self) -> list[str]:
        """Returns the arguments. A replay writes a new run, and the named one is there already."""
        if not self._replayed:
            return self._arguments
        kept, before = [], ""
        for argument in self._arguments:
            if before not in _NAMES and argument.partition("=")[0] not in _NAMES:
                kept.append(argument)
            before = argument
        return kept

    def resumed(self, *options: str) -> str:
        """Returns the command with --resume, which reuses this run's measurements."""
        return self.with_options(*(() if self._replayed else (RESUME,)), *options)

    def settling(self, run_name: str, longer: Sequence[str]) -> str:
        """Returns the command that measures the suspects of this run again. longer: the options for more
        time; the last of equal options counts."""
        named = run_name in self._arguments or f"--run-name={run_name}" in self._arguments
        return self.resumed(*(() if named else ("--run-name", run_name)), *longer)
