"""The features of attention over paged caches for models: arithmetic of prefill, bytes of decode."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Feature, OperationFeatures, ceil_div, given, log2_of
from tile_oracle.features.schemas.pool_columns import (
    BINARY,
    CONFIGURED,
    INTENSITY,
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
        Feature("log2_steps", lambda t: log2_of(t.steps), "log2 of the steps over the keys of one part"),
        Feature("log2_serial", lambda t: log2_of(t.rounds * t.steps * t.tile_n), "log2 of all rounds' keys"),
        Feature("log2_part", lambda t: log2_of(t.read_keys / t.parts), "log2 of the keys of one part"),
        Feature("fill_q", lambda t: t.height / (t.tiles_q * t.tile_m), "useful share of tiles of queries"),
        *BINARY,
    ),
    (
        *TILES,
        *(one for one in _PROBLEM if one.name not in (*_COLUMNS, *_SIZES)),
        Feature("height", lambda t: t.group * t.queries, "queries that share keys"),
        Feature("tiles_q", lambda t: ceil_div(t.height, t.tile_m), "tiles of queries that share keys"),
        Feature("tiles", lambda t: t.tiles_q * t.batch * t.kv_heads * t.parts, "workgroups"),
        Feature("rounds", lambda t: ceil_div(t.tiles, t.cus), "rounds of tiles"),
        Feature("steps", lambda t: ceil_div(t.read_keys, t.tile_n * t.parts), "steps over a part's keys"),
    ),
    _WORDS,
)
FEATURES = OperationFeatures(_POOL, pool=_POOL)
"""See tile_oracle.features.feature_table.OperationFeatures."""
