"""Numbers of things in sentences."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """1 problem, 2 problems, 90,000 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
