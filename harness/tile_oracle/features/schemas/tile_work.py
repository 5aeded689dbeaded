"""How a GEMM kernel of any source divides the work, read from its name: the input of the roofline."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from tile_oracle.features.schemas.configuration import configuration
from tile_oracle.kernel import Kernel, NamedKernel, parse_kernel_name

COPIES, SMALL, DESCRIPTORS, ROWS = "copies", "small", "descriptors", "rows"
"""Engines of Triton's kernels: threads copy tiles of at least 64 rows, or smaller ones; the GPU's tensor
descriptors (TMA); rows without matrix instructions."""
LIBRARY, OLDER, PLAIN, SCALAR = "library", "library_older", "library_plain", "library_scalar"
"""Engines of libraries: cuBLASLt's kernels for Hopper, its older ones, those that do not say their tile, and
the one of these that uses no matrix instructions."""
OTHER = "other"
_HOPPER_ALGORITHM, _SCALAR_ALGORITHM = "a66", "a16"
_SCALAR_TILE = (64.0, 64.0, 64.0)
PIPELINES = ("comp_async", "compv3", "compv4", "mem")
"""Engines of the project's own kernels, by pipeline; all others are `OTHER`."""
ENGINES = (COPIES, SMALL, DESCRIPTORS, ROWS, LIBRARY, OLDER, PLAIN, SCALAR, *PIPELINES, OTHER)

_UNKNOWN_TILE = (128.0, 128.0, 64.0)
_LARGE = 64
"""Rows from which NVIDIA's matrix instructions of a whole warp group (wgmma) apply."""
_GROUP_COLUMNS = 256
_STAGES = {"comp_async": 4.0, "compv4": 2.0}
_LIBRARY_STAGES = 4.0


@dataclass(frozen=True)
class TileWork:
    """One kernel. tile: rows, columns and depth of a step. stages: buffers of tiles. waves: of a workgroup.
    parts: parts of the depth. streams: the steps of all tiles are divided evenly over the compute units.
    stays: workgroups take further tiles. resident: workgroups that a compute unit runs at once; 0: as many
    as fit. wide: operands are read as wide loads whatever their alignment. waves_m, waves_n: how the waves
    divide the tile. swapped: the transpose is computed, so that few rows become columns."""

    engine: str
    tile: tuple[float, float, float]
    stages: float
    waves: float
    parts: float = 1.0
    streams: bool = False
    stays: bool = False
    resident: float = 0.0
    wide: bool = False
    is_triton: bool = False
    waves_m: float = 0.0
    waves_n: float = 0.0
    swapped: bool = False

    @property
    def read_by_waves(self) -> float:
        """Elements that the waves read from LDS for one step along K, each its own rows and columns."""
        rows, columns, _ = self.tile
        return rows * self.waves_n + columns * self.waves_m

    @property
    def read_by_groups(self) -> float:
        """The same for matrix instructions of warp groups (wgmma): 64 rows by up to 256 columns from LDS."""
        rows, columns, _ = self.tile
        if self.swapped:
            rows, columns = columns, rows
        return rows * math.ceil(columns / _GROUP_COLUMNS) + columns * max(rows / _LARGE, 1.0)


@lru_cache(maxsize=65536)
def tile_work(name: str) -> TileWork:
    """The work of a kernel of this name. Raises KernelError for what is no kernel's name."""
    kernel = parse_kernel_name(name)
    known = configuration(name)
    tile = tuple(known[axis] or unknown for axis, unknown in zip(_AXES, _UNKNOWN_TILE, strict=True))
    found = TileWork(
        engine=_engine(kernel, tile[0]),
        tile=(tile[0], tile[1], tile[2]),
        stages=known["stages"],
        waves=known["waves"] or 4.0,
        parts=max(known["parts"], 1.0),
        stays=bool(known["persistent"]),
    )
    return _with_details(found, kernel)


_AXES = ("tile_m", "tile_n", "tile_k")


def _engine(kernel: Kernel, rows: float) -> str:
    if not isinstance(kernel, NamedKernel):
        pipeline = str(kernel.as_row().get("pipeline", ""))
        return pipeline if pipeline in PIPELINES else OTHER
    if kernel.source != "triton":
        if "tile" not in kernel.configuration:
            return SCALAR if kernel.function == _SCALAR_ALGORITHM else PLAIN
        return LIBRARY if kernel.function == _HOPPER_ALGORITHM else OLDER
    if kernel.function.startswith("tma"):
        return DESCRIPTORS
    if kernel.function in ("few_rows", "few_columns"):
        return ROWS
    return COPIES if rows >= _LARGE else SMALL


def _with_details(work: TileWork, kernel: Kernel) -> TileWork:
    if not isinstance(kernel, NamedKernel):
        row = kernel.as_row()
        waves = float(row.get("warp_m", 1)), float(row.get("warp_n", work.waves))
        return replace(work, stages=_STAGES.get(work.engine, 1.0), waves_m=waves[0], waves_n=waves[1])
    if kernel.source != "triton":
        # The library's names hold an id of the stages, which says the depth of a step and not their number.
        # It computes the transpose, since its matrices lie by columns.
        if work.engine == SCALAR:
            work = replace(work, tile=_SCALAR_TILE)
        return replace(work, stages=_LIBRARY_STAGES, waves_m=2.0, waves_n=2.0, swapped=True)
    rows, columns, depth = work.tile
    rows = float(kernel.configuration.get("ROWS", rows))
    columns = float(kernel.configuration.get("COLUMNS", columns))
    more = float(kernel.configuration.get("MORE_N", 0) or 0)
    stages = work.stages or float(kernel.configuration.get("STAGES", 0) or 3)
    multiplying = work.waves * float(kernel.configuration.get("GROUPS", 1) or 1)
    waves_m = 1.0 if rows < _LARGE else 2.0
    return replace(
        work,
        waves=multiplying,
        waves_m=waves_m,
        waves_n=max(multiplying / waves_m, 1.0),
        swapped=kernel.function == "tma_swapped" or kernel.configuration.get("SWAPPED") is True,
        tile=(rows, columns + more, depth),
        stages=stages,
        streams=kernel.function.endswith("stream_k"),
        resident=float(kernel.configuration.get("RESIDENT", 0) or 0),
        wide=work.engine == DESCRIPTORS,
        is_triton=True,
    )
