"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 100


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """ "did you mean NAME?" for the known name that is most like the word; else `otherwise`."""
    close = most_like(word, known, cutoff)
    return f"did you mean {close}?" if close is not None else otherwise


def most_like(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Returns the known name that is most like the word; None if none is as similar as `cutoff`, from 0 to 1
    (equal). The start of a long word is compared, since the time grows with the square of its length."""
    close = difflib.get_close_matches(word[:_LONGEST], list(known), 1, cutoff)
    return close[0] if close else None
