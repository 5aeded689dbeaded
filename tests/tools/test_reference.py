"""docs/reference.md is what the tables of options and commands say."""

from __future__ import annotations

from tools.reference import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.reference"
