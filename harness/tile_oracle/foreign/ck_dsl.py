"""CK DSL's sweeps of convolutions: tables that name a kernel by its tile and pipeline.

    N,G,C,K,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,tile_m,tile_n,tile_k,pipeline,tflops,latency_us

The direction is forward. A table with the columns warp_m, warp_n, warp_k and warp_tile_m, warp_tile_n,
warp_tile_k names kernels of the family. Without them a kernel is one of the source ckdsl, whose name has tile
and pipeline: it is no kernel of CK Tile, and neither its waves nor its warp tile are known.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from tile_oracle.errors import RecordError

_TILE = ("tile_m", "tile_n", "tile_k")
_WAVES = ("warp_m", "warp_n", "warp_k")
_WARP_TILE = ("warp_tile_m", "warp_tile_n", "warp_tile_k")
_DTYPE = re.compile(r"(?<![a-z0-9])(bf16|fp16|fp32)(?![a-z0-9])")


def is_sweep(header: Collection[str]) -> bool:
    """Whether a table with these columns is a sweep of CK DSL."""
    return {*_TILE, "pipeline", "latency_us", "C", "Hi"} <= set(header) and "kernel" not in header


def sweep_dtype(path: Path, dtype: str | None) -> str:
    """The requested data type, or the one in the file's name. Raises RecordError if there is none."""
    found = {dtype} if dtype is not None else set(_DTYPE.findall(path.stem.lower()))
    if len(found) != 1:
        raise RecordError(
            f"{path} is a CK DSL sweep whose file name does not state the data type: give it with --dtype"
        )
    return found.pop()


def with_kernels(table: pd.DataFrame, dtype: str) -> pd.DataFrame:
    """A sweep (all cells are strings) with the column `kernel`. Tile and pipeline stay."""
    kind = f"grouped_conv_forward_{dtype}_2d_"
    if {*_WAVES, *_WARP_TILE} <= set(table):
        names = kind + _joined(table, _TILE) + "_" + table["pipeline"].str.strip()
        names += "_w" + _joined(table, _WAVES) + "_wt" + _joined(table, _WARP_TILE)
    else:
        names = f"{kind}ckdsl.conv.pipeline=" + table["pipeline"].str.strip()
        for name in sorted(_TILE):
            names += f".{name}=" + table[name].str.strip()
    return table.drop(columns=[name for name in _WAVES if name in table]).assign(kernel=names)


def _joined(table: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    first, second, third = (table[name].str.strip() for name in names)
    return first + "x" + second + "x" + third
