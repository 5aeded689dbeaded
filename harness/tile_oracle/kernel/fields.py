"""What the fields and names of every kind of kernel have in common: words, limits, how a cell is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import KernelError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEDULERS = ("intrawave", "interwave")
EPILOGUES = ("cshuffle", "default")

PIPELINE_NAME = re.compile(
    r"mem|comp_async|compv[0-9]{1,2}|basic_v[0-9]{1,2}|basic_async_v[0-9]{1,2}|preshufflev[0-9]{1,2}"
)

MAX_NUMBER = 1 << 20

LATER_FIELDS: Mapping[str, str] = {"specialization": "Default"}
"""Fields of kernels that older records do not have, with what every older kernel was."""
_SHOWN_CHARACTERS = 120


def cell(name: str, kind: str, value: Any) -> Any:
    """A table's cell as the field's own type; numpy's types, whole floats and CSV's words are taken.

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
    """The fields of a kernel class out of a row; other columns are ignored.

    A field of LATER_FIELDS may be missing or null, and then has its default. Raises KernelError for
    another column that is missing, and for one that holds something else.
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


def _is_null(value: Any) -> bool:
    return value is None or value != value


def shortened(value: object) -> str:
    """A value from outside as messages show it: on one line, and not without end."""
    text = repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def triple(values: tuple[int, int, int]) -> str:
    """64x128x64."""
    return "x".join(map(str, values))


def triple_of(text: str) -> tuple[int, int, int]:
    """The inverse of `triple`."""
    m, n, k = text.split("x")
    return int(m), int(n), int(k)
