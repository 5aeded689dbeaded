"""Our feature schema of grouped convolution for pools of several sources."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, FeatureSchema, ceil_div, log2, log2_of
from tile_oracle.features.schemas.code_columns import CODE_INPUTS
from tile_oracle.features.schemas.grouped_conv_own import PROBLEM_COLUMNS, PROBLEM_INPUTS
from tile_oracle.features.schemas.pool_columns import CONFIGURED, ROUNDS, TILES

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    *TILES,
    Feature("tiles_m", lambda t: ceil_div(t.M, t.tile_m), "tiles along M"),
    Feature("tiles_n", lambda t: ceil_div(t.Ng, t.tile_n), "tiles along N of a group"),
    Feature("tiles_k", lambda t: ceil_div(t.Kg, t.tile_k * t.parts), "steps along K of one part"),
    Feature("tiles", lambda t: t.tiles_m * t.tiles_n * t.G * t.parts, "workgroups' tiles"),
    Feature("steps", lambda t: ceil_div(t.tiles, t.cus) * t.tiles_k, "serial K steps"),
)

GROUPED_CONV_POOL = FeatureSchema(
    "grouped_conv_pool_1",
    "grouped_conv",
    (
        *PROBLEM_COLUMNS,
        *CONFIGURED,
        *ROUNDS,
        Feature("log2_tiles_m", lambda t: log2_of(t.tiles_m), "log2 of the tiles along M"),
        Feature("log2_tiles_n", lambda t: log2_of(t.tiles_n), "log2 of the tiles along N of a group"),
        Feature("log2_tiles_k", lambda t: log2_of(t.tiles_k), "log2 of the K steps of a tile"),
        Feature("log2_steps", lambda t: log2_of(t.steps), "log2 of the serial K steps"),
        Feature(
            "log2_cu_traffic",
            lambda t: log2(t.steps * (t.tile_m + t.tile_n) * t.tile_k * t.element_bytes),
            "log2 of the bytes one compute unit loads",
        ),
        Feature("fill_m", lambda t: t.M / (t.tiles_m * t.tile_m), "useful share of the tiles along M"),
        Feature("fill_n", lambda t: t.Ng / (t.tiles_n * t.tile_n), "useful share of the tiles along N"),
        Feature("fill_k", lambda t: t.Kg / (t.tiles_k * t.tile_k * t.parts), "useful share of the K steps"),
        Feature("code_registers", lambda t: t.code_vgprs, "vector registers of a work-item, 0 if unknown"),
        Feature("code_lds_kib", lambda t: t.code_lds_bytes / 1024, "LDS of the binary, KiB, 0 if unknown"),
    ),
    _INTERMEDIATES,
    {"dtype": ELEMENT_BYTES},
    optional=CODE_INPUTS,
    from_names=True,
)
"""For every direction, 2D and 3D, data type and source."""
