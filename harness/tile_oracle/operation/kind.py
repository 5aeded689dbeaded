"""The kind of a problem: the fields that it shares with the kernels that can compute it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any


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


@cache
def parts_of(pattern: str) -> tuple[tuple[str, str], ...]:
    """Returns the texts of a format such as `{dtype}[-s{seed}][-causal]`; with each in brackets, which is
    left out while its field has the usual value, that field. One without braces names a flag."""
    found = re.split(r"\[(.*?)\]", pattern)
    return tuple(
        (text, re.sub(r".*\{|\}.*|-", "", text) if place % 2 else "") for place, text in enumerate(found)
    )


def filled(pattern: str, words: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Returns a format of `parts_of` with these values."""
    parts = (text for text, name in parts_of(pattern) if not name or words[name] != usual.get(name))
    return "".join(parts).format_map(words)
