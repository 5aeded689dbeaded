"""A session's own command line, to be run again with something added."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

RESUME = "--resume"
_NAME = "--run-name"
_FLAGS = (RESUME, "--update-baseline")


class CommandLine:
    """arguments: those of pytest. replayed: nothing was measured, so nothing can be resumed."""

    def __init__(self, arguments: Sequence[str], *, replayed: bool) -> None:
        self._arguments = list(arguments)
        self._replayed = replayed

    def with_options(self, *options: str) -> str:
        """The command, quoted for a shell."""
        added = [option for option in options if option not in _FLAGS or option not in self._arguments]
        return shlex.join(["pytest", *self._kept(), *added])

    def _kept(self) -> list[str]:
        """The arguments. A replay writes a new run, and the named one is there already."""
        if not self._replayed:
            return self._arguments
        kept, before = [], ""
        for argument in self._arguments:
            if before != _NAME and argument != _NAME and not argument.startswith(f"{_NAME}="):
                kept.append(argument)
            before = argument
        return kept

    def resumed(self, *options: str) -> str:
        """The command with --resume, which reuses this run's measurements."""
        return self.with_options(*(() if self._replayed else (RESUME,)), *options)

    def settling(self, run_name: str, longer: Sequence[str]) -> str:
        """The command that measures the suspects of this run again. longer: the options for more time; the
        last of equal options counts."""
        named = run_name in self._arguments or f"--run-name={run_name}" in self._arguments
        return self.resumed(*(() if named else ("--run-name", run_name)), *longer)
