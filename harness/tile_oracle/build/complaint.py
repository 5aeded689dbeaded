"""What a compiler's log says is wrong, for people."""

from __future__ import annotations

_LONGEST_LINE = 400


def complaint(log: str) -> str:
    """The line of a log that says what is wrong: the first error, else the last line; "" for an empty log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = (line for line in lines if "error" in line)
    return next(errors, lines[-1] if lines else "")[:_LONGEST_LINE]


def shortened(log: str, most: int) -> str:
    """The log in about `most` characters: its end, and before that the complaint where the end lacks it."""
    log = log.strip()
    if len(log) <= most:
        return log
    first, end = complaint(log), log[-most:]
    return end if first in end else f"{first}\n[...]\n{end[len(first) :]}"
