"""The project's own attention kernels for the target cpu, which take `keys` keys at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel, shortened
from tile_oracle.operation import Kind
from tile_oracle.operations.attention.problem import ATTENTION_DTYPES, HEAD_DIMS

KEYS = (8, 32, 128)
_NAME = re.compile(r"attention_([a-z0-9]+)_d([0-9]{1,3})_causal([01])_keys([0-9]{1,3})")


@dataclass(frozen=True)
class AttentionKernel(FlatKernel):
    """One kernel. Raises KernelError for a combination without code."""

    dtype: str
    head_dim: int
    causal: int
    keys: int

    op: ClassVar[str] = "attention"

    def __post_init__(self) -> None:
        known = {"dtype": ATTENTION_DTYPES, "head_dim": HEAD_DIMS, "causal": (0, 1), "keys": KEYS}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise KernelError(
                    f"there is no attention kernel with {name} {getattr(self, name)!r}: it is one of "
                    f"{', '.join(map(str, values))}"
                )

    @cached_property
    def kind(self) -> Kind:
        """The fields that problems share."""
        return Kind.of(self.op, dtype=self.dtype, head_dim=self.head_dim, causal=self.causal)

    @property
    def short_name(self) -> str:
        """The name without the fields that problems share."""
        return f"keys{self.keys}"

    @cached_property
    def name(self) -> str:
        """`attention_bf16_d128_causal1_keys32`."""
        return f"attention_{self.dtype}_d{self.head_dim}_causal{self.causal}_{self.short_name}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """The inverse of `name`. Raises KernelError."""
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise KernelError(
                f"{shortened(name)} is not an attention kernel name; one looks like "
                "attention_bf16_d128_causal1_keys32"
            )
        return cls(match[1], *map(int, match.groups()[1:]))
