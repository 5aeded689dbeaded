"""The kind of a problem: the fields that it shares with the kernels that can compute it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, order=True)
class Kind:
    """The operation's name, and the fields that problem and kernel share, in the operation's order."""

    op: str
    fields: tuple[tuple[str, str | int], ...]

    @classmethod
    def of(cls, op: str, **fields: str | int) -> Kind:
        """`Kind.of("gemm", dtype="bf16", layout="rcr")`."""
        return cls(op, tuple(fields.items()))

    @cached_property
    def words(self) -> dict[str, str | int]:
        """Field -> value."""
        return dict(self.fields)

    @property
    def dtype(self) -> str:
        """The data type, which every kind has."""
        return str(self.words["dtype"])
