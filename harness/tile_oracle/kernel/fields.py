"""Common parts of kernel fields and names: allowed words, limits, reading of table cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from tile_oracle.errors import KernelError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from tile_oracle.problem import Kind

SCHEDULERS = ("intrawave", "interwave")
EPILOGUES = ("cshuffle", "default")

PIPELINE_NAME = re.compile(
    r"mem|comp_async|compv[0-9]{1,2}|basic_v[0-9]{1,2}|basic_async_v[0-9]{1,2}|preshufflev[0-9]{1,2}"
)

MAX_NUMBER = 1 << 20

LATER_FIELDS: Mapping[str, str] = {"specialization": "Default"}
"""Fields that older records lack, with the value that every older kernel has."""
_SHOWN_CHARACTERS = 120


def cell(name: str, kind: str, value: Any) -> Any:
    """Converts a table's cell to the field's type. Accepts numpy types, whole floats and the text of a CSV
    file.

    Raises KernelError.
    """
    try:
        if kind == "bool":
            flag = {"True": True, "False": False}.get(value) if isinstance(value, str) else value
            if flag in (True, False):
                return bool(flag)
        elif kind == "int":
            if isinstance(value, str) or int(value) == value:
                return int(value)
        elif isinstance(value, str):
            return str(value)
    except (TypeError, ValueError, OverflowError):
        pass
    wanted = {"bool": "True or False", "int": "an integer", "str": "a text"}[kind]
    raise KernelError(f"{name} = {shortened(value)} is not {wanted}")


def values_of_row(kernel: type[DataclassInstance], row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a kernel class from a row; other columns are ignored.

    A field of LATER_FIELDS that is missing or null gets its default. Raises KernelError for any other missing
    column and for a value of the wrong type.
    """
    values = {}
    for field in fields(kernel):
        if field.name in LATER_FIELDS and _is_null(row.get(field.name)):
            continue
        if field.name in row:
            values[field.name] = cell(field.name, str(field.type), row[field.name])
        elif field.default is MISSING:
            raise KernelError(f"a kernel's row needs the column {field.name}")
    return values


@dataclass(frozen=True)
class FlatKernel:
    """Base of kernels whose fields are texts and numbers: what does not depend on which."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> Kind:
            """The fields that problems share."""

    def matches(self, problem: Any) -> bool:
        """Whether the kernel is for the problem's kind."""
        return bool(self.kind == problem.kind)

    def as_row(self) -> dict[str, Any]:
        """All fields as a flat mapping."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `as_row`; other columns are ignored. Raises KernelError."""
        return cls(**values_of_row(cls, row))


def _is_null(value: Any) -> bool:
    return value is None or value != value


def shortened(value: object) -> str:
    """An external value for messages, limited in length."""
    text = repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def triple(values: tuple[int, int, int]) -> str:
    """64x128x64."""
    return "x".join(map(str, values))


def triple_of(text: str) -> tuple[int, int, int]:
    """The inverse of `triple`."""
    m, n, k = text.split("x")
    return int(m), int(n), int(k)
