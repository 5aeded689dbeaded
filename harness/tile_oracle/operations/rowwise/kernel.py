"""The project's own kernels on rows for the target cpu, which reduce `lanes` elements in parallel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel, shortened
from tile_oracle.operations.rowwise.problem import ROW_DTYPES

LANES = (1, 4, 16, 32)


@dataclass(frozen=True)
class RowKernel(FlatKernel):
    """One kernel. Raises KernelError for a data type or a number of lanes without code."""

    dtype: str
    lanes: int

    op: ClassVar[str]

    def __post_init__(self) -> None:
        if self.dtype not in ROW_DTYPES or self.lanes not in LANES:
            raise KernelError(
                f"there is no {self.op} kernel of {self.dtype} with {self.lanes} lanes: data types are "
                f"{', '.join(ROW_DTYPES)}, lanes {', '.join(map(str, LANES))}"
            )

    @property
    def short_name(self) -> str:
        """The name without the data type."""
        return f"lanes{self.lanes}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Returns the inverse of `name`. Raises KernelError."""
        pattern = rf"{cls.op}_([a-z0-9]+)_lanes([0-9]{{1,3}})"
        match = re.fullmatch(pattern, name) if isinstance(name, str) else None
        if match is None:
            raise KernelError(
                f"{shortened(name)} is not a {cls.op} kernel name; one looks like {cls.op}_bf16_lanes4"
            )
        return cls(match[1], int(match[2]))
