"""The result of an import: records, and what was refused and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

_SHOWN = 5


@dataclass(frozen=True)
class ImportSummary:
    """The result of importing one file. `refused`: reason -> rows. `shown`: a few refused lines. `padded`:
    rows of mem kernels whose names state the wrong padding."""

    source: str
    rows: int
    ok: int
    wrong: int
    trusted: int
    repeats: int
    refused: Mapping[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    padded: int = 0

    def __str__(self) -> str:
        parts = [f"{self.source}: {self.rows} rows, {self.ok} ok"]
        if self.trusted:
            parts.append(f"{self.trusted} of them unverified but trusted (output left unwritten)")
        if self.wrong:
            parts.append(f"{self.wrong} wrong (output left unwritten)")
        if self.repeats:
            parts.append(f"{self.repeats} repeated measurements of a pair")
        if self.padded:
            parts.append(f"{self.padded} of mem kernels read as padded, whatever their names state")
        parts += [f"{count} refused: {reason}" for reason, count in sorted(self.refused.items())]
        return "; ".join(parts)


@dataclass(frozen=True)
class Imported:
    """Records of one file (columns of tile_oracle.record.schema) and a summary of what was refused."""

    records: pd.DataFrame
    summary: ImportSummary


@dataclass
class Refusals:
    """What was refused while a file was read. counts: reason -> rows. padded: see ImportSummary."""

    counts: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)
    padded: int = 0

    def add(self, reason: str, example: str, count: int = 1) -> None:
        self.counts[reason] += count
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{reason}: {plain_name(example[:200])}")


def plain_name(text: object) -> str:
    """The text as valid UTF-8: file names and strings from JSON may hold lone surrogates."""
    return str(text).encode("utf-8", "backslashreplace").decode()
