"""The layout of --help."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.terminal.help_text import fit


def test_paragraphs_are_filled() -> None:
    assert fit("one two three\nfour five\n\nsix", 20) == "one two three four\nfive\n\nsix"


def test_a_comment_goes_on_in_its_column() -> None:
    text = "examples:\n  make x    a comment that is longer than that\n  make yy   short"
    assert fit(text, 40) == (
        "examples:\n  make x    a comment that is longer\n            than that\n  make yy   short"
    )


def test_a_command_stays_whole_and_its_comment_goes_below() -> None:
    command = "  tile-oracle pool list --arch gfx950 --kernel-filter 'tile_n >= 128'"
    text = f"examples:\n{command}   the names that pass\n{' ' * 50}a filter"
    assert fit(text, 60) == f"examples:\n{command}\n      the names that pass a filter"


def test_files_are_shown_as_they_are() -> None:
    text = (
        'a file:\n  # my model, batch 1\n  N,C,K,Hi,Wi,Y,X\n  {"blocks": [{"arch": ["cpu"], "pipeline": []}]}'
    )
    assert fit(text, 30) == text


@given(st.text("ab :,\n-", max_size=200), st.integers(20, 120))
def test_no_word_is_lost(text: str, width: int) -> None:
    assert fit(text, width).split() == text.split()
