"""The features of products of experts for models."""

from __future__ import annotations

from dataclasses import replace

from tile_oracle.features.feature_table import OperationFeatures, given
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.pool_columns import INTENSITY, codes, product_pool
from tile_oracle.operations.fused_moe.problem import DTYPES, PRODUCTS, SCALES

_WORDS = codes(product=PRODUCTS, dtype=DTYPES)
_SIZES = ("tokens", "experts", "topk", "hidden", "intermediate")
_PROBLEM = (
    *(given(name, name) for name in _SIZES),
    *formulas("""
is_down = product  # 1 for the down product
zipf  # hundredths of the exponent of Zipf's law
hot  # percent of the tokens that choose one certain expert
pairs = tokens * topk  # pairs of a token and an expert
N = where(product == 1, hidden, 2 * intermediate)  # columns of the result
K = where(product == 1, intermediate, hidden)  # depth
rows_of_expert = pairs / experts  # rows of an expert on average
hot_rows = tokens * hot / 100  # rows of the hot expert
others = pairs - hot_rows  # rows of the others
rows_at_top = pairs / (log(experts) + 0.5772)  # rows of the first expert by Zipf's law of exponent 1
fullest = maximum(hot_rows, where(zipf > 0, minimum(tokens, rows_at_top), rows_of_expert))
    # rows of the fullest expert, those by Zipf's law as if its exponent were 1
drawn = where(zipf > 0, rows_at_top * (1 + log(maximum(1, experts / rows_at_top))), others)
    # experts that the others' rows may reach: by Zipf's law the first ones, and some of the tail
active = minimum(minimum(drawn, others), experts)  # experts with tokens besides the hot one
flops = 2 * pairs * N * K  # floating-point operations
read = (active + where(hot > 0, 1, 0)) * N * K  # weights of active experts
bytes_total = 2 * (pairs * (N + K) + read) - dtype * (pairs * K + read)
    # bytes of rows, of weights of active experts, and of the result
"""),
    INTENSITY,
)
_POOL = product_pool(
    "fused_moe",
    _PROBLEM,
    ("is_down", "zipf", "hot", "intensity"),
    _WORDS,
    logs=(*_SIZES, "pairs", "N", "K", "rows_of_expert", "fullest", "active", "flops", "bytes_total"),
    tiles="tiles_m * tiles_n",
    element_bytes="(2 - dtype)",
    sizes=formulas("""
even_m = active * ceil_div(others / maximum(active, 1), tile_m)  # blocks of rows of a uniform routing
tiles_m = ceil_div(hot_rows, tile_m) + where(zipf > 0, maximum(active, others / tile_m + active / 2), even_m)
    # blocks of rows; by Zipf's law each expert's last one is half full
tiles_n = ceil_div(N, tile_n)  # tiles along N
tiles_k = ceil_div(K, tile_k)  # steps along K
"""),
    fills=formulas("""
fill_m = pairs / (tiles_m * tile_m)  # share of rows that are no padding
fill_n = N / (tiles_n * tile_n)  # useful share of the tiles along N
fill_k = K / (tiles_k * tile_k)  # useful share of the K steps
"""),
)
_POOL_2 = replace(
    _POOL.extended(
        "fused_moe_pool_2", formulas("scales = scale  # one scale a matrix: 0, a row: 1, a block: 2")
    ),
    words=_WORDS | codes(scale=SCALES),
)
FEATURES = OperationFeatures(_POOL_2, (_POOL,), pool=_POOL_2)
"""See tile_oracle.features.feature_table.OperationFeatures."""
