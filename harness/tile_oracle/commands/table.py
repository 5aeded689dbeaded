"""The commands of `tile-oracle`: their names, groups and lines in the overview."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from tile_oracle.terminal.argument_table import Argument


class CommandModule(Protocol):
    """What a module of tile_oracle.commands has. Its docstring describes the command. GOES_ON, if it has it,
    is what becomes of its work after Ctrl-C."""

    EXAMPLES: str
    ARGUMENTS: tuple[Argument, ...]

    def run(self, args: argparse.Namespace) -> int:
        """Runs the command and returns the exit status. Raises HarnessError."""


@dataclass(frozen=True)
class Command:
    """A command of `tile-oracle`. name: one word, or a group's and the command's within it. line: its line in
    the overview."""

    name: str
    line: str

    @property
    def own_progress(self) -> bool:
        """Whether the pytest that it starts writes to the same terminal."""
        return self.name in ("night", "model train")

    @property
    def module(self) -> str:
        """The module's name."""
        name = {"pool list": "kernels", "runs import": "import_records"}.get(self.name, self.name.split()[-1])
        return f"tile_oracle.commands.{name}"

    def load(self) -> CommandModule:
        """Imports the module."""
        return cast(CommandModule, importlib.import_module(self.module))


_TABLE = """\
This machine:
doctor          show what this machine can run, what is missing, and how to get it
build           compile kernels ahead of time into a folder that another machine can use
night           measure and judge by night, from a scheduler: resumes, keeps baselines and a history

Problems and kernels:
problems        list problem sets, describe some of them, or convert a file of problems to CSV
pool list       list and count the kernels of a rule set, explain refusals and names
pool portfolio  choose the few kernels of a pool that come closest to all of them

Measured runs:
runs history    show all runs of a folder over time: figures, what changed, and steps told from noise
runs compare    compare two runs, oracle files or baselines by their times, or two models
runs merge      put records of runs and machines into one file, or an oracle
runs import     convert published CSV or JSON results and benchmark logs into records
runs suggest    name the pairs to measure next, from the records so far

Models:
model train     train a model that picks kernels, from recorded measurements; with --problem-set to ship it
model evaluate  judge a model's picks by recorded measurements, or show its card
model export    write a model as C++ that picks in microseconds, or check what is deployed

Picks:
pick            pick the kernel for a problem by a model
tune            measure the pool for problems, and say the best kernels"""


def _groups() -> Iterator[tuple[str, tuple[Command, ...]]]:
    for group in _TABLE.split("\n\n"):
        heading, *lines = group.split("\n")
        yield heading.removesuffix(":"), tuple(Command(*re.split(r"\s{2,}", line)) for line in lines)


GROUPS = dict(_groups())
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
