"""Columns that our schemas of pools of several sources share: configurations from names, and rounds over
the compute units.

A tile whose size is unknown, as of some algorithms of libraries, counts as one of 128 x 128 x 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tile_oracle.features.feature_table import (
    Array,
    Feature,
    FeatureSchema,
    FeatureTable,
    Formula,
    ceil_div,
    log2,
    log2_of,
)
from tile_oracle.features.schemas.code_columns import CODE_INPUTS
from tile_oracle.features.schemas.configuration import CONFIGURATION, configuration
from tile_oracle.features.schemas.own_columns import log2_column

_UNKNOWN_TILE = {"tile_m": 128.0, "tile_n": 128.0, "tile_k": 64.0}


def _configured(column: str) -> Callable[[FeatureTable], Array]:
    return lambda t: t.number_of("kernel", lambda name: configuration(name)[column])


CONFIGURED: tuple[Feature, ...] = tuple(
    Feature(f"kernel_{name}", _configured(name), meaning) for name, meaning in CONFIGURATION.items()
)
"""The configuration itself."""


def _tile(column: str) -> Callable[[FeatureTable], Array]:
    def formula(t: FeatureTable) -> Array:
        value = t[f"kernel_{column}"]
        return np.where(value > 0, value, _UNKNOWN_TILE[column])

    return formula


TILES: tuple[Feature, ...] = (
    Feature("tile_m", _tile("tile_m"), "rows of a tile"),
    Feature("tile_n", _tile("tile_n"), "columns of a tile"),
    Feature("tile_k", _tile("tile_k"), "depth of a step"),
    Feature("parts", lambda t: np.maximum(t.kernel_parts, 1.0), "parts of the depth"),
    Feature("cus", lambda t: np.maximum(t.hw_num_cus, 1.0), "compute units, at least 1"),
)
"""Intermediates for formulas with tiles."""

ROUNDS: tuple[Feature, ...] = (
    Feature("log2_tiles", lambda t: log2_of(t.tiles), "log2 of the workgroups' tiles"),
    Feature("log2_cu_loads", lambda t: log2(t.tiles / t.cus), "log2 of the tiles per compute unit"),
    Feature("log2_rounds", lambda t: log2_of(ceil_div(t.tiles, t.cus)), "log2 of the rounds of tiles"),
    Feature(
        "tail", lambda t: t.tiles / t.cus / ceil_div(t.tiles, t.cus), "utilization of the rounds, 0 to 1"
    ),
)
"""The distribution of `tiles` over the compute units."""


def tiles_of_product(n: str, k: str) -> tuple[Feature, ...]:
    """Returns intermediates: the tiles of a product with M rows. n, k: its width and depth."""
    return (
        Feature("tiles_m", lambda t: ceil_div(t.M, t.tile_m), "tiles along M"),
        Feature("tiles_n", lambda t: ceil_div(t[n], t.tile_n), f"tiles along {n}"),
        Feature("tiles_k", lambda t: ceil_div(t[k], t.tile_k * t.parts), f"steps along {k} of one part"),
    )


SERIAL_STEPS: tuple[Feature, ...] = (
    Feature("rounds", lambda t: ceil_div(t.tiles, t.cus), "rounds of tiles"),
    Feature("steps", lambda t: t.rounds * t.tiles_k, "serial K steps"),
)
"""Intermediates: what `tiles` cost."""


def fills_of_product(n: str, k: str) -> tuple[Feature, ...]:
    """Returns the useful shares of `tiles_of_product`."""
    return (
        Feature("fill_m", lambda t: t.M / (t.tiles_m * t.tile_m), "useful share of the tiles along M"),
        Feature("fill_n", lambda t: t[n] / (t.tiles_n * t.tile_n), f"useful share of the tiles along {n}"),
        Feature("fill_k", lambda t: t[k] / (t.tiles_k * t.tile_k * t.parts), "useful share of the K steps"),
    )


PRODUCT_STEPS: tuple[Feature, ...] = (
    Feature("log2_tiles_m", lambda t: log2_of(t.tiles_m), "log2 of the tiles along M"),
    Feature("log2_tiles_n", lambda t: log2_of(t.tiles_n), "log2 of the tiles along N"),
    Feature("log2_tiles_k", lambda t: log2_of(t.tiles_k), "log2 of the K steps of a tile"),
    Feature("log2_steps", lambda t: log2_of(t.steps), "log2 of the serial K steps"),
)
"""The sizes of `tiles_of_product`, and the `steps` of a compute unit."""

CU_TRAFFIC = Feature(
    "log2_cu_traffic",
    lambda t: log2(t.steps * (t.tile_m + t.tile_n) * t.tile_k * t.element_bytes),
    "log2 of the bytes one compute unit loads",
)
"""Of the `steps` of a product."""

INTENSITY = Feature("intensity", lambda t: t.flops / t.bytes_total, "operations per byte")

REGISTERS = Feature("code_registers", lambda t: t.code_vgprs, "vector registers of a work-item, 0 if unknown")

BINARY: tuple[Feature, ...] = (
    REGISTERS,
    Feature("code_lds_kib", lambda t: t.code_lds_bytes / 1024, "LDS of the binary, KiB, 0 if unknown"),
)
"""Metrics of a kernel's binary."""


def codes(**words: Iterable[str]) -> dict[str, dict[str, float]]:
    """Returns the numbers of text columns: each word's place among those of its column."""
    return {name: {word: float(place) for place, word in enumerate(known)} for name, known in words.items()}


def logarithms(names: Iterable[str]) -> tuple[Feature, ...]:
    """Returns the columns log2_NAME of these columns."""
    return tuple(Feature(f"log2_{name}", log2_column(name), f"log2 of {name}") for name in names)


def pool_schema(
    name: str,
    op: str,
    features: Sequence[Feature],
    intermediates: Sequence[Feature],
    words: Mapping[str, Mapping[str, float]],
) -> FeatureSchema:
    """Returns a schema that reads configurations from names, and figures of binaries where they are known."""
    return FeatureSchema(
        name, op, tuple(features), tuple(intermediates), words, optional=CODE_INPUTS, from_names=True
    )


def product_pool(
    op: str,
    problem: Sequence[Feature],
    columns: Sequence[str],
    words: Mapping[str, Mapping[str, float]],
    *,
    logs: Sequence[str],
    tiles: Formula,
    element_bytes: Callable[[FeatureTable], Array | float],
    sizes: tuple[Feature, ...] = tiles_of_product("N", "K"),
    fills: tuple[Feature, ...] = fills_of_product("N", "K"),
) -> FeatureSchema:
    """Returns the schema of pools of an operation that multiplies matrices.

    problem: features of its problems, of which `columns` are columns and `logs` are so as logarithms. tiles:
    their number. element_bytes: of A and B. sizes, fills: `tiles_of_product`, `fills_of_product`.
    """

    def compute(t: FeatureTable) -> Array:
        return log2_of(t.steps * t.tile_m * t.tile_n * t.tile_k)

    def traffic(t: FeatureTable) -> Array:
        return log2_of(element_bytes(t) * t.steps * (t.tile_m + t.tile_n) * t.tile_k)

    return pool_schema(
        f"{op}_pool_1",
        op,
        (
            *logarithms(logs),
            *(one for one in problem if one.name in columns),
            *(*CONFIGURED, *ROUNDS, *PRODUCT_STEPS),
            Feature("log2_compute", compute, "log2 of a compute unit's multiplications"),
            Feature("log2_cu_traffic", traffic, "log2 of the bytes one compute unit loads"),
            *(*fills, *BINARY),
        ),
        (
            *(*TILES, *(one for one in problem if one.name in logs), *sizes),
            Feature("tiles", tiles, "workgroups' tiles"),
            *SERIAL_STEPS,
        ),
        words,
    )
