"""The arguments of commands as data, and those that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tile_oracle.commands.json_output import STDOUT
from tile_oracle.errors import BuildError, RuleError

WRITTEN = ("out", "output", "csv", "html", "markdown", "pairs", "json")
"""The options of all commands that name a file or folder to write."""
DEFAULT_KERNEL_SET = "default"
"""The kernel set where none is given."""


@dataclass(frozen=True)
class Argument:
    """A positional argument, or an option with its spellings. attributes: as argparse takes them."""

    names: tuple[str, ...]
    attributes: Mapping[str, Any]

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Declares the argument."""
        parser.add_argument(*self.names, **self.attributes)


@dataclass(frozen=True)
class Group:
    """Arguments below a heading or, without one, of which a command line has at most one."""

    arguments: tuple[Argument, ...]
    title: str = ""
    required: bool = field(default=False, kw_only=True)

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Declares the arguments."""
        group = (
            parser.add_argument_group(self.title)
            if self.title
            else parser.add_mutually_exclusive_group(required=self.required)
        )
        for one in self.arguments:
            one.add_to(group)


def argument(names: str, metavar: str | tuple[str, ...] | None, help: str, **more: Any) -> Argument:
    """Returns an argument. names: its spellings, separated by spaces. The help ends with the default, if
    any."""
    default = more.get("default")
    if default not in (None, "", [], ()) and "(default: " not in help:
        help += f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
    attributes = {"metavar": metavar, "help": help.replace("%", "%%"), **more}
    return Argument(tuple(names.split()), {name: one for name, one in attributes.items() if one is not None})


def flag(names: str, help: str) -> Argument:
    """Returns an option without a value."""
    return Argument(tuple(names.split()), {"action": "store_true", "help": help.replace("%", "%%")})


def one_of(*arguments: Argument, required: bool = False) -> Group:
    """Arguments that exclude each other."""
    return Group(arguments, required=required)


def add_arguments(parser: argparse.ArgumentParser, arguments: Iterable[Argument | Group]) -> None:
    """Declares arguments in their order."""
    for one in arguments:
        one.add_to(parser)


def json_flag(what: str = "what is shown") -> Argument:
    """Returns a switch: JSON replaces the text."""
    return flag("--json", f"print {what} as JSON, and nothing else")


def json_file(what: str) -> Argument:
    """Returns the same with an optional file, beside which the text is printed."""
    text = f"{what} as JSON: printed instead of the text or, given a FILE, written there"
    return argument("--json", "FILE", text, nargs="?", const=STDOUT)


RECORDS = argument("records", "RECORDS", "a run's folder, or a parquet file of records", nargs="+", type=Path)
BUILD_DIR = argument("--build-dir", "DIR", "cache of compiled kernels (default: the user's)", type=Path)
CK_TILE = argument(
    "--ck-tile",
    "DIR",
    "on AMD's GPUs: CK Tile's own kernels, from a checkout of Composable Kernel or a ROCm install "
    "(--kernels ck_tile=DIR)",
    type=Path,
)
KERNELS = argument(
    "--kernels",
    "SOURCE",
    "kernels that are written in Triton: a Python file that declares them (tile_oracle.triton), or "
    "triton: those that ship; an installed kernel source, NAME or NAME=ARGUMENT; or a .json file of "
    "--kernel-set, such as a list of `pool portfolio`",
)
TOOLCHAIN = argument(
    "--toolchain",
    "NAME",
    "auto, ziglang, clang++ or a compiler's path; on cpu also g++, for AMD's GPUs rocm and hipcc, for sm_90 "
    "nvcc",
    default="auto",
)
PROBLEMS = argument(
    "problems",
    "PROBLEM",
    "problem id, dimensions (N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1), a set's name or a file of "
    "problems",
    nargs="+",
)
MODEL = argument(
    "--model",
    "FOLDER",
    "model folder, or the name of one in models/ or of a shipped one (default: the one that fits)",
)
QUIET = flag("--quiet", "no progress, only the results")


def count(text: str) -> int:
    """Returns a number from 0, as argparse reads it."""
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)


def seed(of: str) -> Argument:
    """Returns a seed, 0 if none is given."""
    return argument("--seed", "N", of, type=int, default=0)


def take_source(args: argparse.Namespace, ck_tile: Path | None = None) -> str:
    """NAME[=ARGUMENT] of the source that --kernels names, or --ck-tile. A .json file of --kernels becomes
    --kernel-set, which reads it. Raises HarnessError for more or other than one source that is compiled."""
    from tile_oracle.session.kernels_option import read_kernels

    given = read_kernels(args.kernels or "", Path.cwd(), ck_tile)
    if given.kernel_set is not None:
        if args.kernel_set not in (None, DEFAULT_KERNEL_SET):
            raise RuleError(f"--kernels {args.kernels} and --kernel-set {args.kernel_set}: leave one out")
        args.kernel_set = given.kernel_set
    elif given.libraries or len(given.sources) != 1 or given.sources[0].startswith("native="):
        raise BuildError(f"--kernels {args.kernels}: give one source whose kernels can be compiled")
    return given.sources[0]
