"""docs/reference.md is what the tables of options and commands say."""

from __future__ import annotations

from tile_oracle.commands.table import COMMANDS
from tile_oracle.session.options import OPTIONS
from tools.reference import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.reference"


def test_every_option_and_command_has_a_row() -> None:
    text = page()
    assert all(f"\n| `--{name}" in text for name in OPTIONS)
    assert all(f"\n| `tile-oracle {name}` | " in text for name in COMMANDS)
