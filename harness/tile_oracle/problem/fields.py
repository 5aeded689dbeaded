"""Common parts of problem fields: limits, and reading of table cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from tile_oracle.errors import ProblemError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_EXTENT = 2**31 - 1
MAX_BYTES = 2**62


def whole_number(name: str, value: Any) -> int:
    """Converts an integer of any type (numpy, text, 3.0) to int without rounding. Raises ProblemError."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"{name} = {value!r} is not an integer") from None
    if not isinstance(value, str) and number != value:
        raise ProblemError(f"{name} = {value!r} is not an integer")
    return number


def values_of_row(problem: type[DataclassInstance], row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a problem class from a row. Ignores other columns, accepts integers of any type.

    Raises ProblemError when a field without a default is missing or a number is not an integer.
    """
    values: dict[str, Any] = {}
    for field in fields(problem):
        if field.name not in row:
            if field.default is MISSING:
                raise ProblemError(f"a problem's {field.name} is missing")
            continue
        value = row[field.name]
        values[field.name] = str(value) if field.type == "str" else whole_number(field.name, value)
    return values


@dataclass(frozen=True)
class FlatProblem:
    """Base of problems: their fields are texts and numbers."""

    def as_row(self) -> dict[str, Any]:
        """All fields as a flat mapping."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `as_row`; other columns are ignored. Raises ProblemError."""
        return cls(**values_of_row(cls, row))
