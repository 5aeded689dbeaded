"""The features of attention over paged caches for models: arithmetic of prefill, bytes of decode."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Feature, OperationFeatures, ceil_div, given
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.pool_columns import (
    AT_ONCE,
    BINARY,
    CONFIGURED,
    INTENSITY,
    OCCUPANCY,
    ROUNDS,
    TILES,
    codes,
    logarithms,
    pool_schema,
)
from tile_oracle.operations.paged_attention.problem import CACHE_DTYPES, LATENT

_SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "page_size", "window")
_PROBLEM = (
    *(given(name, name) for name in (*_SIZES, "sinks", "variation")),
    Feature("is_fp8", lambda t: t.kv_dtype, "1 for a cache of fp8_e4m3"),
    Feature("group", lambda t: t.heads / t.kv_heads, "heads of queries for each head of keys"),
    Feature("mean", lambda t: 1 - t.variation / 200, "mean length over the largest"),
    Feature("past", lambda t: np.maximum(t.seq_kv * t.mean, 1), "keys of a sequence"),
    Feature("queries", lambda t: np.maximum(t.seq_q * t.mean, 1), "queries of a sequence"),
    Feature("rows", lambda t: t.batch * t.queries * t.heads, "queries of all heads"),
    Feature("most", lambda t: t.window + (1 - np.minimum(t.window, 1)) * t.past, "the most keys of a query"),
    Feature("read_keys", lambda t: np.minimum(t.past, t.most + t.queries - 1), "keys that are read"),
    Feature("seen", lambda t: np.minimum(t.most, t.past - (t.queries - 1) / 2), "keys of a query"),
    Feature("widths", lambda t: t.head_dim + np.minimum(t.head_dim, 512), "sizes of q's and v's heads"),
    Feature("flops", lambda t: 2 * t.rows * t.seen * t.widths, "operations of both products, about"),
    Feature("of_key", lambda t: np.where(t.head_dim == LATENT, LATENT, t.widths), "values of a cached key"),
    Feature("cached", lambda t: t.batch * t.read_keys * t.kv_heads * t.of_key, "cached values that are read"),
    Feature("bytes_total", lambda t: 2 * t.rows * t.widths + (2 - t.is_fp8) * t.cached, "bytes moved once"),
    INTENSITY,
)
_WORDS = codes(kv_dtype=CACHE_DTYPES)
_COLUMNS = ("kv_heads", "head_dim", "page_size", "sinks", "variation", "is_fp8", "group", "intensity")
_LOGS = ("batch", "seq_q", "seq_kv", "window", "rows", "read_keys", "seen", "flops", "bytes_total")
_POOL = pool_schema(
    "paged_attention_pool_1",
    "paged_attention",
    (
        *(one for one in _PROBLEM if one.name in _COLUMNS),
        *logarithms(_LOGS),
        *CONFIGURED,
        *ROUNDS,
        *formulas("""
log2_tile_keys = log2_of(tile_keys)  # log2 of the keys that a tile of queries sees
log2_tile_steps = log2_of(tile_steps)  # log2 of the steps of a workgroup
log2_longest = log2_of(longest)  # log2 of the steps of a workgroup of the longest sequence
fill_keys = seen / (tile_steps * tile_n * parts)  # share of the steps' keys that a query sees
"""),
        Feature("fill_q", lambda t: t.height / (t.tiles_q * t.tile_m), "useful share of tiles of queries"),
        *BINARY,
        *OCCUPANCY,
    ),
    (
        *TILES,
        *(one for one in _PROBLEM if one.name not in (*_COLUMNS, *_SIZES)),
        Feature("height", lambda t: t.group * t.queries, "queries that share keys"),
        Feature("tiles_q", lambda t: ceil_div(t.height, t.tile_m), "tiles of queries that share keys"),
        Feature("tiles", lambda t: t.tiles_q * t.batch * t.kv_heads * t.parts, "workgroups"),
        *formulas("""
buffers = tile_m + tile_n * maximum(kernel_stages, 1) * where(head_dim > 256, 1, 2)
    # rows of queries, keys and values in LDS
room = floor(minimum(hw_lds_bytes / (2 * buffers * minimum(head_dim, 512)), 12 / maximum(kernel_waves, 1)))
    # workgroups that fit at once, about
"""),
        *AT_ONCE,
        *formulas("""
tile_queries = minimum(queries, tile_m / group)  # queries of a tile
most_of_tile = where(window > 0, window + tile_queries, past)  # the most keys of its queries together
tile_keys = maximum(minimum(past - (queries - tile_queries) / 2, most_of_tile), 1)  # keys that a tile sees
tile_steps = where(window > 0, tile_keys / tile_n / parts + 1, ceil_div(tile_keys, tile_n * parts))
    # steps over a part's keys, with those that a window begins or ends in
longest = ceil_div(where(window > 0, tile_keys, seq_kv), tile_n * parts)  # the same of the longest sequence
multiplications = tile_steps * tile_m * tile_n  # scores of a workgroup
"""),
    ),
    _WORDS,
)
FEATURES = OperationFeatures(_POOL, pool=_POOL)
"""See tile_oracle.features.feature_table.OperationFeatures."""
