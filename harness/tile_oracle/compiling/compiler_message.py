"""Finds the relevant message in a compiler's log."""

from __future__ import annotations

_LONGEST_LINE = 400


def compiler_message(log: str) -> str:
    """Returns the first line of a log that mentions an error, else its last line; "" for an empty log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = (line for line in lines if "error" in line)
    return next(errors, lines[-1] if lines else "")[:_LONGEST_LINE]


def shortened(log: str, most: int) -> str:
    """Returns the log cut to about `most` characters: the compiler message, if it would be lost, and the
    end."""
    log = log.strip()
    if len(log) <= most:
        return log
    first, end = compiler_message(log), log[-most:]
    return end if first in end else f"{first}\n[...]\n{end[len(first) :]}"
