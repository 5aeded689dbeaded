"""Common parts of problem fields: limits, and reading of table cells."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tile_oracle.errors import ProblemError
from tile_oracle.operation import operation_named
from tile_oracle.operation.flat import Flat
from tile_oracle.operation.kind import filled, parts_of

MAX_EXTENT = 2**31 - 1
MAX_BYTES = 2**62
ELEMENT_BYTES = {
    **{"bf16": 2, "fp16": 2, "fp32": 4},
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "e8m0"), 1),
}
"""Data type -> bytes of an element, of fp4 of a pair."""


@dataclass(frozen=True)
class FlatProblem(Flat):
    """Base of problems, whose fields are texts and numbers: all that follows from them and the descriptor.

    A problem class adds its checks, `id_format`, `operand_shapes` and `flops`.
    """

    refused = ProblemError
    id_format: ClassVar[str]
    """What an id has after the operation's name: `{dtype}-m{M}-n{N}[-s{split_k}][-causal]`. In brackets
    stands what is left out while the field has its default; one without braces names a flag."""
    example_id: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str:
            """The data type of the operands."""

        @property
        def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
            """Shapes of the operands and, last, of the result, outermost extent first."""

        @property
        def flops(self) -> int:
            """Floating-point operations."""

    @cached_property
    def id(self) -> str:
        """Readable and reversible (`from_id`)."""
        return filled(f"{self.op}-{self._id_format()}", self.as_row(), self._usual())

    @classmethod
    @cache
    def _usual(cls) -> dict[str, Any]:
        return {field.name: field.default for field in fields(cls)}

    @classmethod
    def _id_format(cls) -> str:
        return cls.id_format

    @classmethod
    def id_pattern(cls) -> str:
        """Returns the pattern of ids, with a group for each field."""
        texts = {field.name for field in fields(cls) if field.type == "str"}

        def group(match: re.Match[str]) -> str:
            return f"(?P<{match[1]}>{'[a-z0-9_]+' if match[1] in texts else '[0-9]{1,10}'})"

        whole = ""
        for text, name in parts_of(f"{cls.op}-{cls._id_format()}"):
            one = re.sub(r"\{(\w+)\}", group, text) if "{" in text or not name else f"(?P<{name}>{text})"
            whole += f"(?:{one})?" if name else one
        return whole

    @classmethod
    def from_id(cls, text: str) -> Self:
        """Returns the inverse of `id`. Raises ProblemError for any text that `id` would not return."""
        match = re.fullmatch(cls.id_pattern(), text)
        if match is None:
            raise ProblemError(f"{text!r} is not a problem id; one looks like {cls.example_id}")
        problem = cls._of_words({name: word for name, word in match.groupdict().items() if word is not None})
        if problem.id != text:
            raise ProblemError(f"{text!r} is not a problem id: did you mean {problem.id!r}?")
        return problem

    @classmethod
    def _of_words(cls, words: Mapping[str, str]) -> Self:
        """Returns the problem of the groups in an id."""
        return cls.from_row({name: 1 if word == f"-{name}" else word for name, word in words.items()})

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The operation and all fields. Join by this, never by an index."""
        return (self.op, *self.as_row().values())

    @cached_property
    def family(self) -> tuple[Any, ...]:
        """The key without the descriptor's `family_varies`: one layer, whatever the size of its input."""
        return (self.op, *(getattr(self, one) for one in operation_named(self.op).group_fields("family")))

    @property
    def title(self) -> str:
        """The size in words, for people; several problems may share it. By default the id's end."""
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

    @property
    def operand_bytes(self) -> int:
        """Bytes of the operands, each moved once."""
        return self.bytes - ELEMENT_BYTES[self.result_dtype] * math.prod(self.operand_shapes[-1])

    def tflops(self, latency_ms: float) -> float:
        """Throughput in TFLOPS (1e12 floating-point operations a second) at a latency in milliseconds."""
        return self.flops / (latency_ms * 1e9)

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
