"""How a GEMM kernel of any source divides the work, read from its name: the input of the roofline."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from tile_oracle.features.schemas.configuration import configuration, library_cluster, library_stages
from tile_oracle.kernel import FAMILY, Kernel, parse_kernel_name

_HOPPER_ALGORITHM = "a66"
_OLDER_ALGORITHMS = ("a11", "a12", "a13", "a14", "a21", "a23", "a24")
COPIES, SMALL, PIECES, ROWS, COLUMNS = "copies", "small", "pieces", "rows", "columns"
"""Engines of Triton's kernels whose threads copy: tiles of at least 64 rows, smaller ones, tiles in several
pieces; few rows of A and few columns of B without matrix instructions."""
DESCRIPTORS, SWAPPED, UNEVEN, WARPS = "descriptors", "swapped", "uneven", "warps"
"""Those that load by the GPU's tensor descriptors (TMA): plain ones, those that compute the transpose, tiles
in several pieces, and specialized warps."""
LIBRARY, OLDER, SCALAR = "library", "library_older", "library_scalar"
"""Engines of libraries: cuBLASLt's kernels for Hopper, other ones, and the one without matrix
instructions."""
VARIANTS = (LIBRARY, *(f"{LIBRARY}_{number}" for number in range(1, 8)))
"""cuBLASLt's kernels for Hopper by their custom option: how warps divide a tile."""
_ALGORITHMS = {"a16": SCALAR} | {name: f"{LIBRARY}_{name}" for name in _OLDER_ALGORITHMS}
"""Algorithms of cuBLASLt with an engine of their own."""
OTHER = "other"
_SCALAR_TILE = (64.0, 64.0, 64.0)
PIPELINES = ("comp_async", "compv3", "compv4", "mem")
"""Engines of the project's own kernels, by pipeline; all others are `OTHER`."""

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
    resident: workgroups that a compute unit runs at once; 0: as many as fit. wide: operands are read as wide
    loads whatever their alignment. waves_m, waves_n: how the waves divide the tile. swapped: the transpose is
    computed, so that few rows become columns. pieces: matrix instructions across the columns, each of which
    reads the rows from LDS; 0 if they stay in registers. cluster: rows and columns of workgroups that share
    what they load."""

    engine: str
    tile: tuple[float, float, float]
    stages: float
    waves: float
    parts: float = 1.0
    streams: bool = False
    resident: float = 0.0
    wide: bool = False
    is_triton: bool = False
    waves_m: float = 0.0
    waves_n: float = 0.0
    swapped: bool = False
    pieces: float = 1.0
    cluster: tuple[float, float] = (1.0, 1.0)

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
        times = max(self.pieces, math.ceil(columns / _GROUP_COLUMNS)) if self.pieces else 0.0
        return rows * times + columns * max(rows / _LARGE, 1.0)

    @property
    def in_rows(self) -> bool:
        """Whether sums are kept for every element of a step and added up over the threads at the end."""
        return self.engine in (ROWS, COLUMNS)


@lru_cache(maxsize=65536)
def tile_work(name: str) -> TileWork:
    """Returns the work of the kernel of this name. Raises KernelError for an invalid name."""
    kernel = parse_kernel_name(name)
    known = configuration(name)
    tile = tuple(known[axis] or unknown for axis, unknown in zip(_AXES, _UNKNOWN_TILE, strict=True))
    found = TileWork(
        engine=_engine(kernel, tile[0]),
        tile=(tile[0], tile[1], tile[2]),
        stages=known["stages"],
        waves=known["waves"] or 4.0,
        parts=max(known["parts"], 1.0),
    )
    return _with_details(found, kernel)


_AXES = ("tile_m", "tile_n", "tile_k")


def _engine(kernel: Kernel, rows: float) -> str:
    if kernel.source == FAMILY:
        pipeline = str(kernel.as_row().get("pipeline", ""))
        return pipeline if pipeline in PIPELINES else OTHER
    if kernel.source != "triton":
        if kernel.function == _HOPPER_ALGORITHM:
            variant = int(kernel.configuration.get("custom", 0) or 0)
            return VARIANTS[variant] if 0 <= variant < len(VARIANTS) else LIBRARY
        return _ALGORITHMS.get(kernel.function, OLDER)
    if kernel.function in _FUNCTIONS:
        return _FUNCTIONS[kernel.function]
    if kernel.function.startswith("tma"):
        return SWAPPED if _is_swapped(kernel) else DESCRIPTORS
    return COPIES if rows >= _LARGE else SMALL


_FUNCTIONS = {
    "few_rows": ROWS,
    "few_columns": COLUMNS,
    "pieces": PIECES,
    "tma_pieces": UNEVEN,
    "tma_uneven": UNEVEN,
    "tma_warps": WARPS,
    "tma_warps_split_k": WARPS,
}


def _is_swapped(kernel: Kernel) -> bool:
    return kernel.function == "tma_swapped" or kernel.configuration.get("SWAPPED") is True


def _with_details(work: TileWork, kernel: Kernel) -> TileWork:
    if kernel.source == FAMILY:
        row = kernel.as_row()
        waves = float(row.get("warp_m", 1)), float(row.get("warp_n", work.waves))
        return replace(work, stages=_STAGES.get(work.engine, 1.0), waves_m=waves[0], waves_n=waves[1])
    if kernel.source != "triton":
        return _library_work(work, kernel)
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
        swapped=_is_swapped(kernel),
        pieces=0.0 if kernel.configuration.get("REGISTERS") is True else 1.0 + int(more).bit_count(),
        tile=(rows, columns + more, depth),
        stages=stages,
        streams=kernel.function.endswith("stream_k"),
        resident=float(kernel.configuration.get("RESIDENT", 0) or 0),
        wide=work.engine in (DESCRIPTORS, SWAPPED, UNEVEN, WARPS),
        is_triton=True,
    )


def _library_work(work: TileWork, kernel: Kernel) -> TileWork:
    """Returns the library computes the transpose, since its matrices lie by columns. Its kernels for Hopper
    take as many buffers as fit; stages of 0 stand for that."""
    if work.engine == SCALAR:
        work = replace(work, tile=_SCALAR_TILE)
    depth, buffers = library_stages(kernel.name)
    rows, columns, known = work.tile
    hopper = work.engine in VARIANTS
    return replace(
        work,
        tile=(rows, columns, depth or known),
        stages=buffers or (0.0 if hopper else _LIBRARY_STAGES),
        waves_m=2.0,
        waves_n=2.0,
        resident=float(hopper),
        wide=False,
        swapped=True,
        cluster=library_cluster(kernel.name) if hopper else (1.0, 1.0),
    )
