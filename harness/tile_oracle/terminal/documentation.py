"""Pages of the documentation, as messages name them: by title, since the wheel has none of their files."""

from __future__ import annotations

from collections.abc import Mapping

TITLES: Mapping[str, str] = {
    "compare": "Comparing two runs",
    "formats": "Files of other programs",
    "gate": "The gate",
    "heuristic": "Training and judging models",
    "history": "Runs over time",
    "pickers": "Pickers side by side",
    "pool": "Registers, LDS and occupancy of the pool",
    "selector": "Picks in microseconds",
}
"""Name of a page's file in docs/ -> its title."""


def page(name: str) -> str:
    """Returns how a message names a page."""
    return f'"{TITLES[name]}" in the documentation'
