"""The project's own products of experts for the target cpu."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel, shortened
from tile_oracle.operations.fused_moe.problem import BLOCKS, DTYPES, PRODUCTS

ROWS = (1, *BLOCKS)
_NAME = re.compile(r"fused_moe_(bf16)_(gate_up|down)_rows([0-9]{1,3})_columns([0-9]{1,3})")


@dataclass(frozen=True)
class FusedMoeKernel(FlatKernel):
    """One kernel. rows: of a block of sorted pairs; 1: pairs in the order of tokens, without the lists.
    columns: of the result that are computed at a time. Raises KernelError for one without code."""

    dtype: str
    product: str
    rows: int
    columns: int

    op: ClassVar[str] = "fused_moe"

    def __post_init__(self) -> None:
        known = {"dtype": DTYPES, "product": PRODUCTS, "rows": ROWS, "columns": (1, 4, 16)}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise KernelError(
                    f"there is no fused_moe kernel with {name} {getattr(self, name)!r}: it is one of "
                    f"{', '.join(map(str, values))}"
                )

    @property
    def short_name(self) -> str:
        """The name without the fields that problems share."""
        return f"rows{self.rows}_columns{self.columns}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Returns the inverse of `name`. Raises KernelError."""
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise KernelError(
                f"{shortened(name)} is not the name of a fused_moe kernel; one looks like "
                "fused_moe_bf16_gate_up_rows16_columns4"
            )
        return cls(match[1], match[2], int(match[3]), int(match[4]))
