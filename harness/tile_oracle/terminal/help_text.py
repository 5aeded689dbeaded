"""The layout of --help: paragraphs and tables within the terminal's width."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Sequence

_ENTRY = re.compile(r"(?P<first>\s+\S.*?\s{2,})(?P<rest>\S.*)")
"""An indented line of two columns: an example and its comment, a name and its meaning."""
_LEAST_COLUMN = 24
_COMMANDS = ("tile-oracle ", "pytest ", "python ", "make ")
_DEEP = 20
"""Spaces before a line that goes on with the comment of the line above."""
_BELOW = 6
"""Spaces before a comment that stands below its command."""


class HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs. Indented lines stay lines: what is in their second column goes on below it."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fit(text, width)


def fit(text: str, width: int) -> str:
    """Returns the text with no line longer than `width`, as far as words and commands allow."""
    found: list[str] = []
    for part in _parts(text.strip("\n").split("\n")):
        if not part[0][:1].strip():
            found += [line for entry in _joined(part) for line in _entry(entry, width)]
        else:
            found += _filled(" ".join(part), width)
    return "\n".join(found)


def _parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """Paragraphs, headings, and runs of lines that are indented or empty."""
    part: list[str] = []
    for line in lines:
        begins = bool(part) and (
            bool(line[:1].strip()) != bool(part[0][:1].strip())
            or (part[-1][:1].strip() and part[-1].endswith(":"))
        )
        if begins:
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _joined(lines: Sequence[str]) -> list[str]:
    """Lines of which each is whole: comments may go on in the next line, deep below."""
    found: list[str] = []
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if found and found[-1].strip() and depth > _DEEP:
            # Below a command without a comment begins one.
            gap = " " if _ENTRY.fullmatch(found[-1]) else "   "
            found[-1] = f"{found[-1].rstrip()}{gap}{line.strip()}"
        else:
            found.append(line)
    return found


def _is_text(line: str) -> bool:
    """Neither a command nor a piece of a file."""
    return not line.strip().startswith(_COMMANDS) and not set('"{#') & set(line)


def _filled(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _entry(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line.rstrip()]
    match = _ENTRY.fullmatch(line)
    if match is None:
        text = line.strip()
        if not _is_text(line):
            return [line.rstrip()]
        indent = " " * min(len(line) - len(line.lstrip()), _BELOW)
        return _filled(indent + text, width, indent)
    column = len(match["first"])
    if column + _LEAST_COLUMN <= width:
        rest = _filled(match["rest"], width - column)
        return [f"{match['first']}{rest[0]}", *(" " * column + one for one in rest[1:])]
    # A command as long as the line can be pasted; its comment goes below.
    indent = " " * _BELOW
    return [match["first"].rstrip(), *_filled(indent + match["rest"], width, indent)]
