"""A session's own command line, to be run again with something added."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

RESUME = "--resume"


class CommandLine:
    """arguments: those of pytest. replayed: nothing was measured, so nothing can be resumed."""

    def __init__(self, arguments: Sequence[str], *, replayed: bool) -> None:
        self._arguments = list(arguments)
        self._replayed = replayed

    def with_options(self, *options: str) -> str:
        """The command, quoted for a shell."""
        return shlex.join(["pytest", *self._arguments, *options])

    def resumed(self, *options: str) -> str:
        """The command with --resume, which reuses this run's measurements."""
        there = self._replayed or RESUME in self._arguments
        return self.with_options(*(() if there else (RESUME,)), *options)

    def settling(self, run_name: str, longer: Sequence[str]) -> str:
        """The command that measures the suspects of this run again. longer: the options for more time; the
        last of equal options counts."""
        named = run_name in self._arguments or f"--run-name={run_name}" in self._arguments
        return self.resumed(*(() if named else ("--run-name", run_name)), *longer)
