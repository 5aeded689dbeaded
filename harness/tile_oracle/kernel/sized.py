"""Kernels for the target cpu that differ, within a kind of problems, in a few sizes."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel
from tile_oracle.operation import operation_named
from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.flat import shortened
from tile_oracle.operation.kind import parts_of
from tile_oracle.operation.least_work import least_work_of_products
from tile_oracle.operation.part import deferred, part
from tile_oracle.problem import Problem


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
        words = {} if match is None else match.groupdict()
        kernel = cls.from_row({field: word for field, word in words.items() if word}) if words else None
        if kernel is None or kernel.name != name:
            of_kind = operation_named(cls.op).kinds({})[0].words
            example = cls.from_row(of_kind | {name: one[0] for name, one in cls.sizes.items()})
            raise KernelError(
                f"{shortened(name)} is not the name of a kernel of {cls.op}; one looks like {example.name}"
            )
        return kernel

    @classmethod
    @cache
    def _pattern(cls) -> re.Pattern[str]:
        """Of names. Words of a kind that are not known are read where they have no underscore, and stand in
        each name."""
        operation = operation_named(cls.op)
        parts = parts_of(operation.kernel_prefix_format)
        often = [name for _, name in parts]
        words = {
            name: f"(?P<{name}>{'|'.join(map(str, values))}{'' if name in often else '|[a-z0-9]+'})"
            for name, values in operation.kind_fields.items()
        }
        sizes = "_".join(f"{name}(?P<{name}>[0-9]{{1,9}})" for name in cls.sizes)
        prefix = "".join(f"(?:{text})?" if name else text for text, name in parts).format_map(words)
        return re.compile(prefix + sizes)


def sized_operation(
    problem: type[Problem], kernel: type[SizedKernel], package: str | None, **own: Any
) -> Operation:
    """Returns the descriptor of an operation whose parts lie in its package under the names used here.

    own: the fields of `Operation` that differ, or that it has besides.
    """
    worker = part(".on_device:WORKER", package)
    of_package: dict[str, Any] = {
        "parse_kernel": kernel.parse,
        "short_names": "_".join(f"{name}[0-9]+" for name in kernel.sizes),
        "read_rules": partial(deferred("tile_oracle.pool.rule_parts:read_block"), kernel),
        "rules_folder": Path(sys.modules[package or ""].__path__[0]) / "rules",
        "refusals": deferred("tile_oracle.pool.rule_parts:refusals"),
        "cpu_source": deferred(".cpu_source:cpu_source", package),
        "on_device": worker,
        "on_gpu": worker,
        "least_work": least_work_of_products,
        "triton_view": part(".triton_view:View", package),
        "features": part(".features:FEATURES", package),
    }
    return Operation(problem=problem, kernel=kernel, **(of_package | own))
