"""The project's own scaled products for the target cpu, which take `columns` columns of C at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel, shortened
from tile_oracle.operations.scaled_gemm.problem import OPERAND_DTYPES, SCALES

COLUMNS = (1, 4, 16)
_NAME = re.compile(r"scaled_gemm_(fp8_e[45]m[23])_([a-z]+)_columns([0-9]{1,3})")


@dataclass(frozen=True)
class ScaledGemmKernel(FlatKernel):
    """One kernel. Raises KernelError for a combination without code."""

    dtype: str
    scale: str
    columns: int

    op: ClassVar[str] = "scaled_gemm"

    def __post_init__(self) -> None:
        known = {"dtype": OPERAND_DTYPES, "scale": SCALES, "columns": COLUMNS}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise KernelError(
                    f"there is no scaled_gemm kernel with {name} {getattr(self, name)!r}: it is one of "
                    f"{', '.join(map(str, values))}"
                )

    @property
    def short_name(self) -> str:
        """The name without the fields that problems share."""
        return f"columns{self.columns}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Returns the inverse of `name`. Raises KernelError."""
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise KernelError(
                f"{shortened(name)} is not the name of a scaled_gemm kernel; one looks like "
                "scaled_gemm_fp8_e4m3_block_columns4"
            )
        return cls(match[1], match[2], int(match[3]))
