"""Our feature schema of GEMM for pools of several sources: native kernels, Triton, libraries."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, FeatureSchema, ceil_div, log2, log2_of
from tile_oracle.features.schemas.code_columns import CODE_INPUTS
from tile_oracle.features.schemas.gemm_own import PROBLEM_COLUMNS, PROBLEM_INPUTS
from tile_oracle.features.schemas.gemm_published import WORD_CODES
from tile_oracle.features.schemas.pool_columns import CONFIGURED, ROUNDS, TILES

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    *TILES,
    Feature("tiles_m", lambda t: ceil_div(t.M, t.tile_m), "tiles along M"),
    Feature("tiles_n", lambda t: ceil_div(t.N, t.tile_n), "tiles along N"),
    Feature("tiles_k", lambda t: ceil_div(t.K, t.tile_k * t.parts), "steps along K of one part"),
    Feature("tiles", lambda t: t.tiles_m * t.tiles_n * t.parts, "workgroups' tiles"),
    Feature("rounds", lambda t: ceil_div(t.tiles, t.cus), "rounds of tiles"),
    Feature("steps", lambda t: t.rounds * t.tiles_k, "serial K steps"),
)

GEMM_POOL = FeatureSchema(
    "gemm_pool_1",
    "gemm_universal",
    (
        *PROBLEM_COLUMNS,
        *CONFIGURED,
        *ROUNDS,
        Feature("log2_tiles_m", lambda t: log2_of(t.tiles_m), "log2 of the tiles along M"),
        Feature("log2_tiles_n", lambda t: log2_of(t.tiles_n), "log2 of the tiles along N"),
        Feature("log2_tiles_k", lambda t: log2_of(t.tiles_k), "log2 of the K steps of a tile"),
        Feature("log2_steps", lambda t: log2_of(t.steps), "log2 of the serial K steps"),
        Feature(
            "log2_compute",
            lambda t: log2(t.steps * t.tile_m * t.tile_n * t.tile_k),
            "log2 of a compute unit's multiplications",
        ),
        Feature(
            "log2_cu_traffic",
            lambda t: log2(t.steps * (t.tile_m + t.tile_n) * t.tile_k * t.element_bytes),
            "log2 of the bytes one compute unit loads",
        ),
        Feature("fill_m", lambda t: t.M / (t.tiles_m * t.tile_m), "useful share of the tiles along M"),
        Feature("fill_n", lambda t: t.N / (t.tiles_n * t.tile_n), "useful share of the tiles along N"),
        Feature("fill_k", lambda t: t.K / (t.tiles_k * t.tile_k * t.parts), "useful share of the K steps"),
        Feature("code_registers", lambda t: t.code_vgprs, "vector registers of a work-item, 0 if unknown"),
        Feature("code_lds_kib", lambda t: t.code_lds_bytes / 1024, "LDS of the binary, KiB, 0 if unknown"),
    ),
    _INTERMEDIATES,
    {**WORD_CODES, "dtype": ELEMENT_BYTES},
    optional=CODE_INPUTS,
    from_names=True,
)
"""For every layout, data type and source; figures of the binaries where they are known."""
