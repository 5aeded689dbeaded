"""What the binaries of kernels take of the device, by the kernel's name: known of some, not of others.

Records say it of the kernels that they measured, a folder of kernels built ahead of time of those that it
holds. A model that reads such figures keeps them in its folder, so that a prediction needs no compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.build.code_facts import CODE_FACTS, code_facts
from tile_oracle.build.prebuilt_folder import PrebuiltFolder
from tile_oracle.build.source import source_for
from tile_oracle.errors import KernelError, ModelError
from tile_oracle.features.columns import Column
from tile_oracle.kernel import parse_kernel_name

CODE_COLUMNS: tuple[str, ...] = (*CODE_FACTS, "binary_bytes")
"""Columns of a record that a kernel's binary says."""

PREFIX = "code_"
"""What features call such a column: code_vgprs."""


@dataclass(frozen=True)
class CodeTable:
    """`figures`: kernel name -> column -> value; what is not known is not in it."""

    figures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: pd.DataFrame) -> CodeTable:
        """The figures in records or a training table; of a kernel with several the first in the table."""
        names = [name for name in CODE_COLUMNS if name in rows]
        known = rows[["kernel", *names]].dropna(subset=names, how="all") if names else rows.iloc[:0]
        table = known.groupby("kernel", sort=True)[names].first() if names else known
        return cls(
            {
                str(kernel): {str(k): int(v) for k, v in row.items() if pd.notna(v)}
                for kernel, row in zip(table.index, table.to_dict("records"), strict=True)
            }
        )

    @classmethod
    def of_build(cls, folder: Path | str, kernels: Iterable[str]) -> CodeTable:
        """The figures of these kernels from a folder that `tile-oracle build` made; those that it does not
        hold are left out. Raises BuildError for a folder that cannot be used."""
        ahead = PrebuiltFolder(Path(folder))
        figures = {}
        for name in kernels:
            try:
                binary = ahead.find(name, source_for(parse_kernel_name(name), ahead.facts.arch))
            except KernelError:
                continue
            if binary is not None:
                facts = code_facts(binary.path, ahead.facts.arch)
                found = {**{key: getattr(facts, key) for key in CODE_FACTS}, "binary_bytes": binary.bytes}
                figures[name] = {key: value for key, value in found.items() if value is not None}
        return cls(figures)

    def over(self, other: CodeTable) -> CodeTable:
        """Both; what both know is as in this one."""
        return CodeTable({**other.figures, **self.figures})

    def without(self, kernels: Iterable[str]) -> CodeTable:
        """The figures of all other kernels."""
        gone = set(kernels)
        return CodeTable({name: values for name, values in self.figures.items() if name not in gone})

    def columns(self, kernels: Any) -> dict[str, Column]:
        """code_{column} of every kernel name, 0 where it is not known."""
        codes, names = pd.factorize(np.asarray(kernels, dtype=object))
        known = [self.figures.get(str(name), {}) for name in names]
        return {
            PREFIX + column: np.array([float(one.get(column, 0)) for one in known])[codes]
            for column in CODE_COLUMNS
        }

    def as_json(self) -> dict[str, Any]:
        return {"kernels": {name: dict(values) for name, values in sorted(self.figures.items())}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CodeTable:
        """The inverse of `as_json`. Raises ModelError for anything else."""
        try:
            figures = {
                str(name): {str(key): int(number) for key, number in values.items()}
                for name, values in value["kernels"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the code-object figures cannot be read: {error!r}") from None
        if any(number < 0 for values in figures.values() for number in values.values()):
            raise ModelError("the code-object figures cannot be read: one of them is negative")
        return cls(figures)
