"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 100


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """ "did you mean NAME?" for the known name that is most like the word; else `otherwise`."""
    close = difflib.get_close_matches(word[:_LONGEST], list(known), 1, cutoff)
    return f"did you mean {close[0]}?" if close else otherwise
