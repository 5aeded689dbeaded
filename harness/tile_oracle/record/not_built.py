"""Finds the kernels that a library's checkout does not build, from records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tile_oracle.compiling.kernel_source import NATIVE, NOT_IN_SOURCE

if TYPE_CHECKING:
    import pandas as pd


def not_built(records: pd.DataFrame) -> frozenset[str]:
    """Returns the names of the kernels that, in all their rows, a library's checkout has no code for or
    cannot compile. A model cannot pick them there.

    Kernels of tile-oracle's own family are excluded: its rules guarantee that they build.
    """
    if "implementation" not in records:
        return frozenset()
    whose = records["implementation"]
    library = records[whose.notna() & (whose != NATIVE)]
    if library.empty:
        return frozenset()
    detail = library["detail"].fillna("").astype(str)
    no_code = (library["status"] == "unsupported") & detail.str.startswith(NOT_IN_SOURCE)
    never = (no_code | (library["status"] == "build_error")).groupby(library["kernel"].astype(str)).all()
    return frozenset(never[never].index)
