"""The project's own fused products for the target cpu, which take `columns` columns of C at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel, shortened
from tile_oracle.operations.fused_gemm.epilogues import EPILOGUES
from tile_oracle.operations.fused_gemm.problem import DTYPES
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS

COLUMNS = (1, 4, 16)
_NAME = re.compile(r"fused_gemm_([a-z0-9]+)_([rc]{3})_([a-z_]+)_columns([0-9]{1,3})")


@dataclass(frozen=True)
class FusedGemmKernel(FlatKernel):
    """One kernel. Raises KernelError for a combination without code."""

    dtype: str
    layout: str
    epilogue: str
    columns: int

    op: ClassVar[str] = "fused_gemm"

    def __post_init__(self) -> None:
        known = {"dtype": DTYPES, "layout": GEMM_LAYOUTS, "epilogue": EPILOGUES, "columns": COLUMNS}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise KernelError(
                    f"there is no fused_gemm kernel with {name} {getattr(self, name)!r}: it is one of "
                    f"{', '.join(map(str, values))}"
                )

    @property
    def short_name(self) -> str:
        """The name without the fields that problems share."""
        return f"columns{self.columns}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """The inverse of `name`. Raises KernelError."""
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise KernelError(
                f"{shortened(name)} is not the name of a fused_gemm kernel; one looks like "
                "fused_gemm_bf16_rcr_bias_gelu_columns4"
            )
        return cls(match[1], match[2], match[3], int(match[4]))
