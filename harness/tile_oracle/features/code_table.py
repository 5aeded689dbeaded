"""Resource use of kernel binaries (registers, LDS, spills, size) by kernel name, for the kernels where it is
known.

It comes from records or from a folder of prebuilt kernels. A model that uses these facts keeps them in its
folder, so that predictions need no compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd

from tile_oracle.compiling.code_facts import CODE_FACTS, code_facts
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder
from tile_oracle.compiling.source import source_for
from tile_oracle.errors import KernelError, ModelError
from tile_oracle.features.columns import Column
from tile_oracle.files.sealed_json import typed
from tile_oracle.kernel import parse_kernel_name

CODE_COLUMNS: tuple[str, ...] = (*CODE_FACTS, "binary_bytes")
"""Record columns that come from a kernel's binary."""

_Count = Annotated[int, msgspec.Meta(ge=0)]
PREFIX = "code_"
"""Prefix of these columns in feature formulas: code_vgprs."""


@dataclass(frozen=True)
class CodeTable:
    """facts: kernel name -> column of CODE_COLUMNS -> value, without the unknown ones."""

    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: pd.DataFrame) -> CodeTable:
        """Returns the facts in records or a training table. If a kernel has several values, the first one
        counts."""
        names = [name for name in CODE_COLUMNS if name in rows]
        of_kernel = rows.groupby("kernel", sort=True, observed=True)
        table = of_kernel[names].first().dropna(how="all") if names else rows.iloc[:0]
        return cls(
            {
                str(kernel): {str(k): int(v) for k, v in row.items() if pd.notna(v)}
                for kernel, row in zip(table.index, table.to_dict("records"), strict=True)
            }
        )

    @classmethod
    def of_build(cls, folder: Path | str, kernels: Iterable[str]) -> CodeTable:
        """Returns the facts of these kernels from a folder made by `tile-oracle build`; kernels that are not
        in it are left out. Raises BuildError if the folder cannot be used."""
        ahead = PrebuiltFolder(Path(folder))
        table = {}
        for name in kernels:
            try:
                binary = ahead.find(name, source_for(parse_kernel_name(name), ahead.facts.arch))
            except KernelError:
                continue
            if binary is not None:
                facts = code_facts(binary.path, ahead.facts.arch)
                found = {**{key: getattr(facts, key) for key in CODE_FACTS}, "binary_bytes": binary.bytes}
                table[name] = {key: value for key, value in found.items() if value is not None}
        return cls(table)

    def over(self, other: CodeTable) -> CodeTable:
        """Returns the union of both tables; this one has priority."""
        return CodeTable({**other.facts, **self.facts})

    def without(self, kernels: Iterable[str]) -> CodeTable:
        """Returns the facts of all other kernels."""
        gone = set(kernels)
        return CodeTable({name: values for name, values in self.facts.items() if name not in gone})

    def columns(self, kernels: Any) -> dict[str, Column]:
        """Column code_{name} -> its value for each of the kernel names, 0 if unknown."""
        codes, names = pd.factorize(np.asarray(kernels, dtype=object))
        known = [self.facts.get(str(name), {}) for name in names]
        return {
            PREFIX + column: np.array([float(one.get(column, 0)) for one in known])[codes]
            for column in CODE_COLUMNS
        }

    def of_rows(self, rows: pd.DataFrame) -> dict[str, Column]:
        """Returns `columns` for the kernels of training rows: the facts of each row's own binary where it has
        them, since compilers build one kernel differently."""
        found = self.columns(rows["kernel"])
        for name in CODE_COLUMNS:
            if name in rows:
                own = rows[name].to_numpy(dtype=float, na_value=np.nan)
                found[PREFIX + name] = np.where(np.isnan(own), found[PREFIX + name], own)
        return found

    def as_json(self) -> dict[str, Any]:
        return {"kernels": {name: dict(values) for name, values in sorted(self.facts.items())}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], path: Path) -> CodeTable:
        """Returns the inverse of `as_json`. path: the value's. Raises ModelError for anything else."""
        return cls(typed(value.get("kernels"), dict[str, dict[str, _Count]], path, ModelError))
