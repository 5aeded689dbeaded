"""Sweeps of CK DSL's convolutions and of rocKE's GEMMs: tables that name a kernel by its tile and pipeline.

    N,G,C,K,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,tile_m,tile_n,tile_k,pipeline,tflops,latency_us

The direction is forward. A table with the columns warp_m, warp_n, warp_k and warp_tile_m, warp_tile_n,
warp_tile_k names kernels of the family. Without them a kernel is one of the source ckdsl, whose name has tile
and pipeline: it is no kernel of CK Tile, and neither its waves nor its warp tile are known.

rocKE (`gen_sweep_data.py`) writes parquet, with all fields of a kernel of the family and `is_valid`. What it
writes of other operations names no problem, or has no times.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.errors import RecordError
from tile_oracle.kernel.fields import PIPELINE_NAME
from tile_oracle.problem.dtype_words import dtype_named

if TYPE_CHECKING:
    import pandas as pd

_TILE = ("tile_m", "tile_n", "tile_k")
_WAVES = ("warp_m", "warp_n", "warp_k")
_WARP_TILE = ("warp_tile_m", "warp_tile_n", "warp_tile_k")
_ROCKE = frozenset({"op_type", "kernel_name", "measured_tflops", "is_valid"})
_FLAGS = ("pad_m", "pad_n", "pad_k", "persistent")
_NOT_READ = {
    "conv_implicit_gemm": "its rows state neither strides nor padding",
    "fmha": "its keys and values are in pages, which is another operation",
    **dict.fromkeys(("rmsnorm2d", "fused_moe"), "its rows have no times"),
}
_DTYPE = re.compile(r"(?<![a-z0-9])(bf16|fp16|fp32)(?![a-z0-9])")


def is_sweep(header: Collection[str]) -> bool:
    """Returns whether a table with these columns is a sweep of CK DSL."""
    return {*_TILE, "pipeline", "latency_us", "C", "Hi"} <= set(header) and "kernel" not in header


def dtype_in_name(path: Path) -> str:
    """Returns the data type that a file's name states; "" if it states none, or several."""
    found = set(_DTYPE.findall(path.stem.lower()))
    return found.pop() if len(found) == 1 else ""


def sweep_dtype(path: Path, dtype: str | None) -> str:
    """Returns the requested data type, or the one in the file's name. Raises RecordError if there is none."""
    if found := dtype or dtype_in_name(path):
        return found
    raise RecordError(
        f"{path} is a CK DSL sweep whose file name does not state the data type: give it with --dtype"
    )


def with_kernels(path: Path, table: pd.DataFrame, dtype: str) -> pd.DataFrame:
    """Returns a sweep (all cells are strings) with the column `kernel`. Tile and pipeline stay.

    Raises RecordError for a tile that is none.
    """
    for name in _TILE:
        bad = table[~table[name].str.strip().str.fullmatch("[1-9][0-9]{0,8}")]
        if len(bad):
            what = f"{name} = {bad[name].iloc[0]!r} is no positive whole number"
            raise RecordError(
                f"{path}, row {table.index.get_loc(bad.index[0]) + 1} of the CK DSL sweep: {what}"
            )
    kind = f"grouped_conv_forward_{dtype}_2d_"
    if {*_WAVES, *_WARP_TILE} <= set(table):
        names = kind + _joined(table, _TILE) + "_" + table["pipeline"].str.strip()
        names += "_w" + _joined(table, _WAVES) + "_wt" + _joined(table, _WARP_TILE)
    else:
        pipelines = table["pipeline"].str.strip()
        names = f"{kind}ckdsl.conv.pipeline=" + pipelines
        for name in sorted(_TILE):
            names += f".{name}=" + table[name].str.strip()
        # As a kernel of the family, which no pipeline of another name has: the row is refused for it.
        names = names.where(
            pipelines.str.fullmatch(PIPELINE_NAME), kind + _joined(table, _TILE) + "_" + pipelines
        )
    return table.drop(columns=[name for name in _WAVES if name in table]).assign(kernel=names)


def is_rocke(table: pd.DataFrame) -> bool:
    """Returns whether a table is a sweep of rocKE. CK Tile's have the same columns, and kernels with its
    names."""
    if not set(table) >= _ROCKE:
        return False
    ops, names = set(table["op_type"].astype(str)), table["kernel_name"].astype(str)
    whole = {*_TILE, *_WAVES, *_WARP_TILE, *_FLAGS, "pipeline"} <= set(table)
    return bool(ops & _NOT_READ.keys()) or (whole and not names.str.startswith(tuple(ops | {"gemm_"})).any())


def with_rocke_kernels(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Returns a sweep of rocKE with the column `kernel`. Raises RecordError for another operation than
    GEMM."""
    for op in sorted(set(table["op_type"].astype(str)) - {"gemm_universal"}):
        why = _NOT_READ.get(op, "its kernels are unknown")
        raise RecordError(f"{path} is a sweep of rocKE of {op}, which is not read: {why}")
    words = table.astype(str)
    names = "gemm_" + words["dtype"].map(dtype_named) + "_" + words["layout"]
    for name in ("pipeline", "epilogue", "scheduler", *_FLAGS):
        names += "_" + words[name]
    for axes in (_TILE, _WAVES, _WARP_TILE):
        names += "_" + _joined(words, axes)
    return table.drop(columns=["kernel_name", *_WAVES]).assign(kernel=names)


def _joined(table: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    first, second, third = (table[name].str.strip() for name in names)
    return first + "x" + second + "x" + third
