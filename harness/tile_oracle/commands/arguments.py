"""The arguments of commands as tables of text, and the rows that several commands share.

A row is the argument's spellings or, of a positional one, its name; its value; two spaces; its help, which
may go on in indented lines. A line that ends in a colon heads the rows below it.

    files FILE...              one or more; [FILE...]: any number; [FILE]: one or none
    --folds N=5                an option with its default
    --out FOLDER!              an option that must be given; RECORDS*: one that may be repeated
    --by oracle|pick=oracle    one of these words
    --json [FILE]              an option whose value may be left out
    --quiet                    a switch
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """A positional argument, or an option with its spellings. attributes: as argparse takes them. heading: of
    the group that it is in."""

    names: tuple[str, ...]
    attributes: Mapping[str, Any]
    heading: str = ""


def count(text: str) -> int:
    """Returns a number from 0, as argparse reads it."""
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)


_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("N", "K"), count),
    **dict.fromkeys(("S", "PERCENT"), float),
    **dict.fromkeys(("FILE", "DIR", "FOLDER", "PATH", "PAGE", "PLACE", "RECORDS", "RUN"), Path),
}
"""The word for a value -> how it is read. Others are texts."""
_VALUE = re.compile(r"(?P<words>[^=!*\]]*?)(?P<many>(?<!,)\.\.\.)?(?:=(?P<default>[^!*\]]*))?(?P<mark>[!*]?)")


def argument_table(text: str, **choices: Sequence[str]) -> tuple[Argument, ...]:
    """Returns the arguments of a table. choices: by an argument's name, the words that it takes."""
    return tuple(_arguments(text, choices))


def _arguments(text: str, choices: Mapping[str, Sequence[str]]) -> Iterator[Argument]:
    heading = ""
    for row in re.split(r"\n(?=\S)", text.strip()):
        if row.endswith(":") and "  " not in row:
            heading = row[:-1]
            continue
        words, about = re.split(r"\s{2,}", row, maxsplit=1)
        first, *others = words.split()
        names = (first, *(word for word in others if word.startswith("-")))
        known = choices.get(names[-1].lstrip("-").replace("-", "_"), ())
        attributes = _attributes(others[len(names) - 1 :], known, is_option=first.startswith("-"))
        about = " ".join(about.split())
        default = attributes.get("default")
        if default and "(default: " not in about:
            about += f" (default: {default})"
        yield Argument(names, {**attributes, "help": about.replace("%", "%%")}, heading)


def _attributes(values: Sequence[str], choices: Sequence[str], *, is_option: bool) -> dict[str, Any]:
    """Returns what argparse is told about a value; of several, that they are given together."""
    if not values:
        return {"action": "store_true"}
    found = _VALUE.fullmatch(values[0].strip("[]"))
    assert found is not None, values
    words, default, optional = found["words"], found["default"], values[0].startswith("[")
    kind, choices = _KINDS.get(words), choices or words.split("|")
    told: dict[str, Any] = {"type": kind, "default": default, "metavar": words}
    if len(choices) > 1:
        told |= {"choices": tuple(choices), "metavar": None if "|" in words else words}
    if len(values) > 1:
        told |= {"nargs": len(values), "metavar": tuple(values)}
    elif found["many"] or optional:
        told["nargs"] = ("*" if optional else "+") if found["many"] else "?"
        told["const"] = (STDOUT if kind is Path else "") if told["nargs"] == "?" and is_option else None
    if found["mark"] == "*":
        told |= {"action": "append", "default": []}
    told["required"] = True if found["mark"] == "!" else None
    return {name: one for name, one in told.items() if one is not None}


def add_arguments(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Declares arguments in their order."""
    places: dict[str, argparse._ActionsContainer] = {"": parser}
    for one in arguments:
        if one.heading not in places:
            places[one.heading] = parser.add_argument_group(one.heading)
        places[one.heading].add_argument(*one.names, **one.attributes)


RECORDS_HELP = "a run's folder, or a parquet file of records"
PROBLEM_HELP = """problem id, dimensions (N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1), a set's name
    or a file of problems"""
AS_JSON = "as JSON: printed instead of the text or, given a FILE, written there"
ONLY_JSON = "as JSON, and nothing else"
BUILD_DIR = "--build-dir DIR  cache of compiled kernels (default: the user's)"
CK_TILE = """\
--ck-tile DIR  on AMD's GPUs: CK Tile's own kernels, from a checkout of Composable Kernel or a ROCm install
    (--kernels ck_tile=DIR)"""
KERNELS = """\
--kernels SOURCE  kernels that are written in Triton: a Python file that declares them (tile_oracle.triton),
    or triton: those that ship; an installed kernel source, NAME or NAME=ARGUMENT; or a .json file of
    --kernel-set, such as a list of `pool portfolio`"""
TOOLCHAIN = """\
--toolchain NAME=auto  auto, ziglang, clang++ or a compiler's path; on cpu also g++, for AMD's GPUs rocm and
    hipcc, for sm_90 nvcc"""


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
