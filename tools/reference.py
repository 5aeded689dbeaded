"""Writes docs/reference.md, the options of a session and the commands, from the tables that declare them.

python -m tools.reference
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tile_oracle.commands.table import GROUPS
from tile_oracle.session.options import OPTIONS

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"

_HEAD = """\
# Options and commands

For everyone who looks up an option. `python -m tools.reference` writes this page from the tables in the code.

## Options of a session

They belong to pytest runs with `--problem-set` or `--oracle`. All but these two can have a [default in
pyproject.toml](usage.md#defaults-of-a-project). A TIME is 20ms, 90s, 10m or 2h.
"""

_COMMANDS = """\
## Commands

`tile-oracle COMMAND --help` shows a command's options, with examples.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    for section, options in groupby(OPTIONS.values(), key=lambda option: option.section):
        rows = ((f"--{one.name} {one.metavar}".rstrip(), one.help) for one in options)
        parts.append(f"### {section}\n\n{_table('option', rows)}")
    parts.append(_COMMANDS)
    for group, commands in GROUPS.items():
        rows = ((f"tile-oracle {one.name}", one.line) for one in commands)
        parts.append(f"### {group}\n\n{_table('command', rows)}")
    return "\n".join(parts)


def _table(what: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join([f"| {what} | meaning |", "|---|---|", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
