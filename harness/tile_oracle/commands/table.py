"""The commands of `tile-oracle`: their names, groups and lines in the overview."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from tile_oracle.commands.arguments import Argument


class CommandModule(Protocol):
    """What a module of tile_oracle.commands has. It may also have ABOUT, a description longer than the line
    of the overview."""

    EXAMPLES: str
    ARGUMENTS: tuple[Argument, ...]

    def run(self, args: argparse.Namespace) -> int:
        """Runs the command and returns the exit status. Raises HarnessError."""


@dataclass(frozen=True)
class Command:
    """A command of `tile-oracle`."""

    name: str
    """One word, or a group's and the command's within it."""
    line: str
    """Its line in the overview."""
    module: str = ""
    """Its module in tile_oracle.commands, if it is not called as the command."""
    goes_on: str = "the same command starts again"
    """What becomes of its work after Ctrl-C."""
    own_progress: bool = False
    """Whether the pytest that it starts writes to the same terminal."""

    def load(self) -> CommandModule:
        """Imports the module."""
        name = self.module or self.name.split()[-1]
        return cast(CommandModule, importlib.import_module(f"tile_oracle.commands.{name}"))


_CACHED = "what is compiled is in the cache, and the same command goes on from there"

GROUPS: dict[str, tuple[Command, ...]] = {
    "This machine": (
        Command("doctor", "show what this machine can run, what is missing, and how to get it"),
        Command(
            "build",
            "compile kernels ahead of time into a folder that another machine can use",
            goes_on=_CACHED,
        ),
        Command(
            "night",
            "measure and judge by night, from a scheduler: resumes, keeps baselines and a history",
            goes_on="the same command continues this night",
            own_progress=True,
        ),
    ),
    "Problems and kernels": (
        Command("problems", "list problem sets, describe some of them, or convert a file of problems to CSV"),
        Command(
            "pool list",
            "list and count the kernels of a rule set, explain refusals and names",
            "kernels",
            goes_on=_CACHED,
        ),
        Command("new", "write a running example of an operation, or of kernels in Triton, to start from"),
        Command("pool portfolio", "choose the few kernels of a pool that come closest to all of them"),
    ),
    "Measured runs": (
        Command("runs report", "make the report of a run again from its parquet files"),
        Command(
            "runs history",
            "show all runs of a folder over time: figures, what changed, and steps told from noise",
        ),
        Command("runs compare", "compare two runs, oracle files or baselines by their times, or two models"),
        Command("runs merge", "put records of runs and machines into one file, or an oracle"),
        Command(
            "runs import",
            "convert published CSV or JSON results and benchmark logs into records",
            "import_records",
        ),
        Command("runs suggest", "name the pairs to measure next, from the records so far"),
    ),
    "Models": (
        Command(
            "model train",
            "train a model that picks kernels, from recorded measurements; with --problem-set to ship it",
            own_progress=True,
        ),
        Command("model evaluate", "judge a model's picks by recorded measurements, or show its card"),
        Command("model export", "write a model as C++ that picks in microseconds, or check what is deployed"),
    ),
    "Picks": (
        Command("pick", "pick the kernel for a problem by a model"),
        Command(
            "tune",
            "measure the pool for problems and keep the best kernels for picking",
            goes_on="what was measured is kept, and the same command goes on from there",
        ),
    ),
}
"""Heading of the overview -> its commands."""

COMMANDS = {one.name: one for group in GROUPS.values() for one in group}

_EARLIER = {name.split()[-1]: name for name in COMMANDS} | {
    "card": "model evaluate",
    "features": "pool list --features",
    "kernels": "pool list",
    "model card": "model evaluate",
    "model parity": "model export --check",
    "oracle": "runs merge --format oracle",
    "parity": "model export --check",
    "pool search": "pick --search",
    "predict": "pick --predictions",
    "seal": "doctor --seal",
    "search": "pick --search",
    "ship": "model train",
}
"""Earlier name of a command, which scripts may use -> what is meant today."""


def called_today(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line, with an earlier name of a command replaced."""
    known = {name.split()[0] for name in COMMANDS}
    for count in (2, 1):
        named = " ".join(words[:count])
        if named in _EARLIER and named not in known:
            return [*_EARLIER[named].split(), *words[count:]]
    return list(words)


def named_command(words: Sequence[str]) -> Command | None:
    """Returns the command that a command line begins with."""
    return COMMANDS.get(words[0] if words else "") or COMMANDS.get(" ".join(words[:2]))
