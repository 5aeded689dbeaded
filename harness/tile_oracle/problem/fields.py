"""Common parts of problem fields: limits, and reading of table cells."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tile_oracle.errors import ProblemError
from tile_oracle.operation import Kind, operation_named

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_EXTENT = 2**31 - 1
MAX_BYTES = 2**62
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp32": 4}
"""Data type -> bytes of an element."""


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
    """Returns the fields of a problem class from a row. Ignores other columns, accepts integers of any type.

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
    """Base of problems, whose fields are texts and numbers: all that follows from them and the descriptor.

    A problem class adds its checks, `id`, `from_id`, `operand_shapes` and `flops`.
    """

    op: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str:
            """The data type of the operands."""

        @property
        def id(self) -> str:
            """A readable, reversible name."""

        @property
        def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
            """Shapes of the operands and, last, of the result, outermost extent first."""

        @property
        def flops(self) -> int:
            """Floating-point operations."""

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The operation and all fields. Join by this, never by an index."""
        return (self.op, *self.as_row().values())

    @cached_property
    def family(self) -> tuple[Any, ...]:
        """The key without the descriptor's `family_varies`: one layer, whatever the size of its input."""
        return (self.op, *(getattr(self, one) for one in operation_named(self.op).group_fields("family")))

    @cached_property
    def kind(self) -> Kind:
        """The descriptor's `kind_fields`, which kernels share."""
        return operation_named(self.op).kind_of(self)

    @property
    def title(self) -> str:
        """The size in words, for people; several problems may share it. By default the id."""
        return self.id.removeprefix(f"{self.op}-")

    @property
    def result_dtype(self) -> str:
        """The data type of the result."""
        return self.dtype

    @property
    def operand_dtypes(self) -> tuple[str, str]:
        """The data types of the first two operands."""
        return (self.dtype, self.dtype)

    @cached_property
    def bytes(self) -> int:
        """Bytes of the operands and the result, each moved once."""
        *operands, result = (math.prod(shape) for shape in self.operand_shapes)
        return ELEMENT_BYTES[self.dtype] * sum(operands) + ELEMENT_BYTES[self.result_dtype] * result

    def tflops(self, latency_ms: float) -> float:
        """Throughput in TFLOPS (1e12 floating-point operations a second) at a latency in milliseconds."""
        return self.flops / (latency_ms * 1e9)

    @classmethod
    @cache
    def field_names(cls) -> tuple[str, ...]:
        """Returns the names of the fields, in their order."""
        return tuple(field.name for field in fields(cls))

    def as_row(self) -> dict[str, Any]:
        """Returns all fields as a flat mapping, in their order."""
        return {name: getattr(self, name) for name in self.field_names()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Returns the inverse of `as_row`; other columns are ignored, integers of any type are accepted.

        Raises ProblemError when a field without a default is missing or a number is not an integer.
        """
        return cls(**values_of_row(cls, row))

    def _require(self, name: str, known: Collection[Any]) -> None:
        """Raises ProblemError when a field has none of the known values."""
        if getattr(self, name) not in known:
            raise ProblemError(f"{name} {getattr(self, name)!r} is not one of {', '.join(map(str, known))}")

    def _require_integers(self, names: Iterable[str], least: int = 1, most: int = MAX_EXTENT) -> None:
        """Raises ProblemError when a field is not an integer in the range."""
        for name in names:
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                above = "2^31 - 1" if most == MAX_EXTENT else f"{most:,}"
                raise ProblemError(f"{name} = {value!r} is not an integer from {least} to {above}")

    def _require_size(self) -> None:
        """Raises ProblemError for a problem that no machine runs."""
        if self.bytes > MAX_BYTES or self.flops > MAX_BYTES:
            raise ProblemError("its tensors hold more than 2^62 bytes: no machine runs this problem")
