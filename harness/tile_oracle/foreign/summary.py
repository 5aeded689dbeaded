"""The result of an import: records, and what was refused and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pandas as pd

from tile_oracle.pages.words import few

_SHOWN_CHARACTERS = 200
_SHOWN_FIELDS = 12


@dataclass
class ImportSummary:
    """The result of importing one file, filled while it is read.

    refused: reason -> rows. denied: status and reason -> rows that are kept, but not ok. shown: the first row
    of each reason. padded: rows of mem kernels whose names state the wrong padding. unknown: fields of the
    file that its format does not know.
    """

    source: str
    rows: int = 0
    ok: int = 0
    wrong: int = 0
    trusted: int = 0
    repeats: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)
    padded: int = 0
    denied: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        parts = [f"{self.source}: {self.rows} rows, {self.ok} ok"]
        counted = (
            (self.trusted, "of them unverified but trusted (output left unwritten)"),
            (self.repeats, "repeated measurements of a pair"),
            (self.padded, "of mem kernels read as padded, whatever their names state"),
        )
        parts += [f"{count} {what}" for count, what in counted if count]
        parts += [f"{count} {reason}" for reason, count in sorted(self.denied.items())]
        parts += [f"{count} refused: {reason}" for reason, count in sorted(self.refused.items())]
        if self.unknown:
            parts.append(f"unknown fields, not read: {few(sorted(self.unknown), _SHOWN_FIELDS)}")
        return "; ".join(parts)

    @property
    def first(self) -> str:
        """The first refused row, for a file without any other."""
        lines = (line for line in self.shown if line.split(": ")[0] in self.refused)
        return next(lines, self.shown[0] if self.shown else "it is empty")

    def refuse(self, reason: str, example: str, count: int = 1, kept: bool = False) -> None:
        """Counts refused rows, or rows that are kept with another status than ok; the first example of a
        reason is kept."""
        counts = self.denied if kept else self.refused
        if len(reason) > _SHOWN_CHARACTERS:
            reason = f"{reason[: _SHOWN_CHARACTERS - 3]}..."
        if reason not in counts:
            self.shown.append(f"{reason}: {plain_name(example[:_SHOWN_CHARACTERS])}")
        counts[reason] += count


@dataclass(frozen=True)
class Imported:
    """Records of one file (columns of tile_oracle.record.schema) and a summary of what was refused."""

    records: pd.DataFrame
    summary: ImportSummary


def plain_name(text: object) -> str:
    """Returns the text as valid UTF-8: file names and strings from JSON may hold lone surrogates."""
    return str(text).encode("utf-8", "backslashreplace").decode()
