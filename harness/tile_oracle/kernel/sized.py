"""Kernels for the target cpu that differ, within a kind of problems, in a few sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel, shortened
from tile_oracle.operation import operation_named


@dataclass(frozen=True)
class SizedKernel(FlatKernel):
    """Base of kernels whose fields are those of their kind and then some sizes.

    sizes: field -> its values. Raises KernelError for a value without code.
    """

    sizes: ClassVar[Mapping[str, Sequence[int]]]

    def __post_init__(self) -> None:
        for name, values in {**operation_named(self.op).kind_fields, **self.sizes}.items():
            if getattr(self, name) not in values:
                raise KernelError(
                    f"there is no {self.op} kernel with {name} {getattr(self, name)!r}: it is one of "
                    f"{', '.join(map(str, values))}"
                )

    @property
    def short_name(self) -> str:
        """The sizes: `rows16_columns4`."""
        return "_".join(f"{name}{getattr(self, name)}" for name in self.sizes)

    @classmethod
    def parse(cls, name: str) -> Self:
        """Read a name, as the inverse of `name`. Raises KernelError."""
        match = cls._pattern().fullmatch(name) if isinstance(name, str) else None
        if match is None:
            values = {**operation_named(cls.op).kind_fields, **cls.sizes}
            example = cls.from_row({name: one[0] for name, one in values.items()})
            raise KernelError(
                f"{shortened(name)} is not the name of a kernel of {cls.op}; one looks like {example.name}"
            )
        return cls.from_row(match.groupdict())

    @classmethod
    @cache
    def _pattern(cls) -> re.Pattern[str]:
        """Of names. Words of a kind that are not known are read where they have no underscore."""
        operation = operation_named(cls.op)
        words = {
            name: f"(?P<{name}>{'|'.join(map(str, values))}|[a-z0-9]+)"
            for name, values in operation.kind_fields.items()
        }
        sizes = "_".join(f"{name}(?P<{name}>[0-9]{{1,9}})" for name in cls.sizes)
        return re.compile(operation.kernel_prefix_format.format_map(words) + sizes)
