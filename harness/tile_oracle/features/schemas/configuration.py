"""What a kernel of any source is configured with, as numbers, read from its name.

Kernels of a family have fields; those of Triton files and libraries have only their names. Here all of them
have the same columns, so that one model can rank a pool of several sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from zlib import crc32

from tile_oracle.features.schemas.own_columns import PIPELINES
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import FAMILY, Kernel, parse_kernel_name, source_of

CONFIGURATION: Mapping[str, str] = {
    "source": "0 the operation's family, 1 Triton, 2 cuBLASLt, 3 cuDNN, 4 other sources",
    "function": "a number that stands for the function, the pipeline or the library's algorithm",
    "tile_m": "rows of a tile, 0 if unknown",
    "tile_n": "columns of a tile, 0 if unknown",
    "tile_k": "depth of a step, 0 if unknown",
    "waves": "waves (warps) of a workgroup, 0 if unknown",
    "stages": "buffers of the software pipeline, 0 if unknown",
    "group": "rows of tiles that are computed together, 0 if unknown",
    "parts": "parts that the depth is split into",
    "persistent": "1 if workgroups process several tiles",
    "padded": "number of axes along which a partial tile is handled, 0 if unknown",
    "order": "the library's order of tiles (swizzle)",
    "variant": "the library's custom option",
    "cluster": "the library's shape of a cluster of workgroups",
    "rest": "a number that stands for all other values",
}
"""Name of a column -> its meaning."""

SOURCES: Mapping[str, float] = {"triton": 1.0, "cublaslt": 2.0, "cudnn": 3.0}
_OTHER_SOURCE = 4.0

_COLUMN_OF_VALUE = {
    "BLOCK_M": "tile_m", "BLOCK_N": "tile_n", "BLOCK_K": "tile_k", "BLOCK": "tile_n", "ROWS": "tile_m",
    "num_warps": "waves", "num_stages": "stages", "GROUP_M": "group", "SPLIT_K": "parts", "SPLITS": "parts",
    "split_k": "parts", "stages": "stages", "swizzle": "order", "custom": "variant", "cluster": "cluster",
}  # fmt: skip
"""Name of a value of a Triton configuration or of a library's algorithm -> column."""
_COLUMN_OF_SIZE = {"rows": "tile_m", "columns": "tile_n", "keys": "tile_n", "lanes": "tile_n"}
"""Size of an own kernel for the target cpu -> column."""
_TILE = "tile"
_CODES = 4093


def word_code(word: str) -> float:
    """Returns a number from 0 to 4092 for a word, the same on every machine."""
    return float(crc32(word.encode()) % _CODES)


@lru_cache(maxsize=65536)
def configuration(name: str) -> Mapping[str, float]:
    """Returns the value of each column of CONFIGURATION. Raises KernelError for an invalid name."""
    kernel = parse_kernel_name(name)
    known = dict.fromkeys(CONFIGURATION, 0.0) | {"parts": 1.0}
    return known | (_of_family(kernel) if kernel.source == FAMILY else _of_source(kernel))


def _of_family(kernel: Kernel) -> dict[str, float]:
    row = kernel.as_row()
    numbers: dict[str, float] = {
        name: float(row[name]) for name in ("tile_m", "tile_n", "tile_k") if name in row
    } | {column: float(row[name]) for name, column in _COLUMN_OF_SIZE.items() if name in row}
    waves = [float(row[name]) for name in ("warp_m", "warp_n", "warp_k") if name in row]
    if waves:
        numbers["waves"] = waves[0] * waves[1] * waves[2]
    pipeline = str(row.get("pipeline", ""))
    numbers["function"] = float(PIPELINES.get(pipeline, word_code(pipeline)))
    numbers["persistent"] = float(bool(row.get("persistent", False)))
    numbers["padded"] = float(sum(bool(row.get(name, False)) for name in ("pad_m", "pad_n", "pad_k")))
    words = {key: value for key, value in row.items() if key not in (*numbers, *kernel.kind.words)}
    numbers["rest"] = word_code(repr(sorted(words.items())))
    return numbers


def _of_source(kernel: Kernel) -> dict[str, float]:
    numbers = {"source": SOURCES.get(kernel.source, _OTHER_SOURCE), "function": word_code(kernel.function)}
    rest = []
    for name, value in kernel.configuration.items():
        column = _COLUMN_OF_VALUE.get(name)
        if name == _TILE and kernel.source == "cublaslt":
            # Its result is column-major: the transpose of ours.
            numbers["tile_n"], numbers["tile_m"] = _cublaslt_tile(int(value))
        elif column is None:
            rest.append(f"{name}={value}")
        else:
            numbers[column] = word_code(value) if isinstance(value, str) else float(value)
    numbers["persistent"] = float(kernel.source == "triton" and kernel.function in _PERSISTENT)
    if rest:
        numbers["rest"] = word_code(".".join(rest))
    return numbers


_PERSISTENT = ("persistent", "tma", "stream_k", "tma_pieces", "tma_warps", "tma_warps_split_k")
"""Triton functions whose programs process several tiles."""


_CLUSTERS = {
    3: (2, 1), 4: (4, 1), 5: (1, 2), 6: (2, 2), 7: (4, 2), 8: (1, 4), 9: (2, 4), 10: (4, 4), 11: (8, 1),
    12: (1, 8), 13: (8, 2), 14: (2, 8), 15: (16, 1), 16: (1, 16),
}  # fmt: skip
"""Id -> workgroups along the rows and columns of the library's result: cublasLtClusterShape_t."""
_STAGES = {
    **{number: (16, number) for number in range(1, 7)},
    **{number: (32, number - 6) for number in range(7, 13)},
    **{number: (64, number - 12) for number in range(13, 19)},
    **{number: (128, number - 18) for number in range(19, 25)},
    25: (32, 10), 26: (8, 4), 27: (16, 10), 28: (8, 5), 31: (8, 3),
    32: (8, 0), 33: (16, 0), 34: (32, 0), 35: (64, 0), 36: (128, 0), 37: (256, 0),
}  # fmt: skip
"""Id -> depth of a step and number of buffers, 0 where the library chooses it: cublasLtMatmulStages_t."""


def library_cluster(name: str) -> tuple[float, float]:
    """Rows and columns of workgroups of a kernel's cluster in our row-major result; 1, 1 without clusters."""
    columns, rows = _CLUSTERS.get(_library_number(name, "cluster"), (1, 1))
    return float(rows), float(columns)


def library_stages(name: str) -> tuple[float, float]:
    """Depth of a step, in elements, and number of buffers of a library's algorithm; 0 for what is unknown."""
    depth, buffers = _STAGES.get(_library_number(name, "stages"), (0, 0))
    return float(depth), float(buffers)


def _library_number(name: str, value: str) -> int:
    """Returns a number of a cuBLASLt algorithm; 0 for other kernels."""
    kernel = parse_kernel_name(name)
    return int(kernel.configuration.get(value, 0) or 0) if kernel.source == "cublaslt" else 0


def _cublaslt_tile(number: int) -> tuple[float, float]:
    """Rows and columns of a tile of the library, zeros for an unknown id."""
    tiles = _cublaslt_tiles()
    return tiles[number - 1] if 0 < number <= len(tiles) else (0.0, 0.0)


@cache
def _cublaslt_tiles() -> tuple[tuple[float, float], ...]:
    text = (data_folder("kernels") / "library" / "cublaslt_tiles.txt").read_text()
    words = (word for line in text.splitlines() if not line.startswith("#") for word in line.split())
    return tuple((float(rows), float(columns)) for rows, _, columns in (one.partition("x") for one in words))


def family_of(name: str) -> str:
    """Returns what a model knows of a kernel by codes alone, so that it has to be trained on it: the source
    and the function, or for a family of the package the pipeline and all that has no column of its own."""
    if source := source_of(name):
        return f"{source}.{name.split('.', 2)[1]}"
    known = configuration(name)
    return f"{known['function']:g} {known['rest']:g}"
