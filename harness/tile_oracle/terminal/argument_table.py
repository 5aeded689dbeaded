"""Options and arguments as tables of text: those of the commands, and of a session.

A row is the argument's spellings or, of a positional one, its name; its value; two spaces; its help, which
may go on in indented lines. A line that ends in a colon heads the rows below it.

    files FILE...              one or more; [FILE...]: any number; [FILE]: one or none
    --folds N=5                an option with its default
    --out FOLDER!              an option that must be given; RECORDS*: one that may be repeated
    --by oracle|pick=oracle    one of these words
    --json [FILE]              an option whose value may be left out; [FILE=x]: it is x then
    --quiet                    a switch
    --out FILE.csv             a file whose name ends so; FILE.{json,txt}: or so
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STDOUT = Path("-")
"""The FILE that means standard output."""
WRITTEN = ("out", "output", "csv", "markdown", "pairs", "json")
"""The options of all commands that name a file or folder to write."""


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


def percent(text: str) -> float:
    """Returns a number from 0 to 100, as argparse reads it."""
    if not 0 <= (number := float(text)) <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 100")
    return number


KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("N", "K"), count),
    **{"S": float, "PERCENT": percent},
    **dict.fromkeys(("FILE", "DIR", "FOLDER", "PAGE", "PLACE", "TABLE", "RECORDS", "RUN"), Path),
}
"""The word for a value -> how it is read. Others are texts."""
_VALUE = re.compile(r"(?P<words>[^=!*\]]*?)(?P<many>(?<!,)\.\.\.)?(?:=(?P<default>[^!*\]]*))?(?P<mark>[!*]?)")


def argument_table(
    text: str, kinds: Mapping[str, Any] = KINDS, **choices: Sequence[str]
) -> tuple[Argument, ...]:
    """Returns the arguments of a table. kinds: the word for a value -> how it is read. choices: by an
    argument's name, the words that it takes."""
    return tuple(_arguments(text, kinds, choices))


def _arguments(
    text: str, kinds: Mapping[str, Any], choices: Mapping[str, Sequence[str]]
) -> Iterator[Argument]:
    heading = ""
    for row in re.split(r"\n(?=\S)", text.strip()):
        if row.endswith(":") and "  " not in row:
            heading = row[:-1]
            continue
        words, about = re.split(r"\s{2,}", row, maxsplit=1)
        first, *others = words.split()
        names = (first, *(word for word in others if word.startswith("-")))
        known = choices.get(names[-1].lstrip("-").replace("-", "_"), ())
        values = others[len(names) - 1 :]
        attributes = _attributes(values, kinds, known, is_option=first.startswith("-"))
        about = " ".join(about.split())
        default = attributes.get("default")
        if default and "(default" not in about:
            about += f" (default: {default})"
        if isinstance(default, str) and "type" in attributes:
            # Read here: with --help argparse stops before it reads defaults, and pytest goes on with them.
            attributes["default"] = attributes["type"](default)
        yield Argument(names, {**attributes, "help": about.replace("%", "%%")}, heading)


def _attributes(
    values: Sequence[str], kinds: Mapping[str, Any], choices: Sequence[str], *, is_option: bool
) -> dict[str, Any]:
    """Returns what argparse is told about a value; of several, that they are given together."""
    if not values:
        return {"action": "store_true"}
    found = _VALUE.fullmatch(values[0].strip("[]"))
    assert found is not None, values
    words, default, optional = found["words"], found["default"], values[0].startswith("[")
    kind, choices = kinds.get(words.partition(".")[0]), choices or words.split("|")
    told: dict[str, Any] = {"type": kind, "default": default, "metavar": words}
    if len(choices) > 1:
        told |= {"choices": tuple(choices), "metavar": None if "|" in words else words}
    if len(values) > 1:
        told |= {"nargs": len(values), "metavar": tuple(values)}
    elif found["many"] or optional:
        told["nargs"] = ("*" if optional else "+") if found["many"] else "?"
        if told["nargs"] == "?" and is_option:
            told |= {"const": default or (STDOUT if kind is Path else ""), "default": None}
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
