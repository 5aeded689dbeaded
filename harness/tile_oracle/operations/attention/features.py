"""The features of attention for models: arithmetic of prefill, bytes of decode."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, OperationFeatures
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.configuration import word_code
from tile_oracle.features.schemas.pool_columns import (
    BINARY,
    CONFIGURED,
    INTENSITY,
    ROUNDS,
    TILES,
    logarithms,
    pool_schema,
)

_PROBLEM = (
    *formulas("""
heads  # heads
kv_heads  # kv_heads
head_dim  # head_dim
group = heads / kv_heads  # heads of Q for each head of K and V
rows = batch * heads * seq_q  # rows of the result
visible = seq_q * seq_kv - causal * seq_q * (seq_q - 1) / 2
    # pairs of query and key that are computed, in one head
element_bytes = dtype  # bytes of one element
flops = 4 * batch * heads * visible * head_dim  # floating-point operations of both products
bytes_total = 2 * batch * (heads * seq_q + kv_heads * seq_kv) * head_dim * element_bytes
    # bytes of operands and result
"""),
)
_COLUMNS = ("heads", "kv_heads", "head_dim")
ATTENTION_POOL = pool_schema(
    "attention_pool_1",
    "attention",
    (
        *(one for one in _PROBLEM if one.name in _COLUMNS),
        *logarithms(("batch", "seq_q", "seq_kv", "rows", "flops", "bytes_total")),
        *formulas("""
causal  # 1 if a query sees only the keys up to its own place
bytes_of_element = element_bytes  # bytes of one element
heads_of_a_key = group  # heads of Q for each head of K and V
"""),
        INTENSITY,
        *CONFIGURED,
        *ROUNDS,
        *formulas("""
log2_steps = log2_of(steps)  # log2 of the steps over the keys of one part
queries_of_a_tile = seq_q / tile_m  # queries over rows of a tile
keys_of_a_part = log2_of(seq_kv / parts)  # log2 of the keys of one part
fill_q = heights / (ceil_div(heights, tile_m) * tile_m)  # useful share of the tiles of queries
"""),
        *BINARY,
    ),
    (
        *TILES,
        *(one for one in _PROBLEM if one.name not in _COLUMNS),
        *formulas(f"""
shares = kernel_function == {word_code("attention_decode")}  # heads that share keys are in one tile
heights = where(shares == 1, group, 1.0) * seq_q  # queries to be tiled
slices = rows / heights  # how often there are so many queries
tiles = slices * ceil_div(heights, tile_m) * parts  # workgroups
steps = ceil_div(seq_kv, tile_n * parts)  # steps over the keys of one part
"""),
    ),
    {"dtype": ELEMENT_BYTES},
)
"""For every data type and source."""
FEATURES = OperationFeatures(ATTENTION_POOL, pool=ATTENTION_POOL)
"""See tile_oracle.features.feature_table.OperationFeatures."""
