"""What the fields of every kind of problem have in common: their limits, and how a table's cell is read."""

from __future__ import annotations

from typing import Any

from harness.errors import ProblemError

MAX_EXTENT = 2**31 - 1
MAX_BYTES = 2**62


def whole_number(name: str, value: Any) -> int:
    """An integer of any kind (numpy's, text, 3.0) as int; never rounded. Raises ProblemError."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"{name} = {value!r} is not an integer") from None
    if not isinstance(value, str) and number != value:
        raise ProblemError(f"{name} = {value!r} is not an integer")
    return number
