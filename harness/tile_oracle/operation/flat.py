"""What problems and kernels have in common: frozen dataclasses whose fields are texts, numbers and flags."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from functools import cache, cached_property
from typing import Any, ClassVar, Self

from tile_oracle.errors import HarnessError
from tile_oracle.operation.kind import Kind
from tile_oracle.operation.registry import operation_named

_SHOWN_CHARACTERS = 120


class Flat:
    """Base of `FlatProblem` and `FlatKernel`: the fields as columns of a table.

    refused: what is raised for a row without such an object. later: the fields that older records lack, with
    the value that every older object has.
    """

    op: ClassVar[str]
    """The operation's name."""
    refused: ClassVar[type[HarnessError]]
    later: ClassVar[Mapping[str, str]] = {}

    @cached_property
    def kind(self) -> Kind:
        """The descriptor's `kind_fields`, which problems and their kernels share."""
        return operation_named(self.op).kind_of(self)

    @classmethod
    @cache
    def field_names(cls) -> tuple[str, ...]:
        """Returns the names of the fields, in their order."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    def as_row(self) -> dict[str, Any]:
        """Returns all fields as a flat mapping, in their order."""
        return {name: getattr(self, name) for name in self.field_names()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Returns the inverse of `as_row`. Other columns are ignored; numpy types, whole floats and the texts
        of a CSV file are accepted.

        Raises `refused` for a missing column or a value of the wrong type.
        """
        values = {}
        for field in fields(cls):  # type: ignore[arg-type]
            name = field.name
            if name in cls.later and _is_null(row.get(name)):
                continue
            if name in row:
                values[name] = cls._cell(name, str(field.type), row[name])
            elif field.default is MISSING:
                raise cls.refused(f"{cls.op}: the column {name} is missing")
        return cls(**values)

    @classmethod
    def _cell(cls, name: str, kind: str, value: Any) -> Any:
        """Converts a table's cell to the field's type. Raises `refused`."""
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
        raise cls.refused(f"{name} = {shortened(value)} is not {wanted}")

    def _require(self, name: str, known: Collection[Any]) -> None:
        """Raises `refused` when a field has none of the known values."""
        value = getattr(self, name)
        if value not in known:
            raise self.refused(f"{name} {shortened(value)} is not one of {', '.join(map(str, known))}")


def _is_null(value: Any) -> bool:
    return value is None or value != value


def shortened(value: object) -> str:
    """Returns an external value for messages, limited in length."""
    text = repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
