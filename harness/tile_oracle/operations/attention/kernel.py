"""The project's own attention kernels for the target cpu, which take `keys` keys at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import FlatKernel, shortened
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

    @property
    def short_name(self) -> str:
        """The name without the fields that problems share."""
        return f"keys{self.keys}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Returns the inverse of `name`. Raises KernelError."""
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise KernelError(
                f"{shortened(name)} is not an attention kernel name; one looks like "
                "attention_bf16_d128_causal1_keys32"
            )
        return cls(match[1], *map(int, match.groups()[1:]))
