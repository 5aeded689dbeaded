"""Our own feature schema of GEMM: rounds and tails over the compute units, fill, bytes, intensity."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, FeatureSchema, given
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.gemm_published import WORD_CODES
from tile_oracle.features.schemas.own_columns import (
    INTERWAVE,
    LOADS,
    PIPELINES,
    ROUNDS,
    TILE,
    WARP_TILE,
    WORKGROUP,
    cost,
    fills,
)

PROBLEM_INPUTS = formulas("""
element_bytes = dtype  # bytes of one element of A and B
result_bytes = where(dtype == 1, 2.0, dtype)  # bytes of one element of C (fp8: fp16)
flops = 2 * M * N * K  # floating-point operations
bytes_a = M * K * element_bytes  # bytes of A
bytes_b = K * N * element_bytes  # bytes of B
bytes_written = M * N * result_bytes  # bytes of C
bytes_total = bytes_a + bytes_b + bytes_written  # bytes, each tensor moved once
a_by_columns = layout in ("crr", "ccr")  # A is column-major
b_by_columns = layout in ("rcr", "ccr")  # B is column-major
row_a = where(a_by_columns == 1, M, K)  # contiguous elements of A
row_b = where(b_by_columns == 1, K, N)  # contiguous elements of B
""")
"""Intermediates that depend on the problem alone."""

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    *formulas("""
tiles_m = ceil_div(M, tile_m)  # tiles along M
tiles_n = ceil_div(N, tile_n)  # tiles along N
tiles_k = ceil_div(K, tile_k * split_k)  # steps along K of one part
tiles = tiles_m * tiles_n * split_k  # workgroups' tiles
"""),
    *ROUNDS,
    *formulas("""
waves = warp_m * warp_n * warp_k  # waves of a workgroup
shuffled = starts(pipeline, "preshuffle")  # B shuffled
two_buffers = (pipeline in ("compv4", "comp_async")) + shuffled  # the pipeline works in two LDS buffers
lds_bytes = (tile_m + tile_n * (1 - shuffled)) * tile_k * element_bytes * (1 + two_buffers)
    # LDS of a workgroup, bytes
"""),
)

_FEATURES = (
    *formulas("""
log2_M = log2_of(M)  # log2 of the rows
log2_N = log2_of(N)  # log2 of the columns
log2_K = log2_of(K)  # log2 of the depth
split_k  # parts that the depth is split into
log2_tiles_m = log2_of(tiles_m)  # log2 of the tiles along M
log2_tiles_n = log2_of(tiles_n)  # log2 of the tiles along N
"""),
    *LOADS,
    *fills("M", "N", "K / (tiles_k * tile_k * split_k)"),
    *formulas("""
log2_bytes = log2_of(bytes_total)  # log2 of the bytes of all three matrices
log2_bytes_b = log2_of(bytes_b)  # log2 of the bytes of B
log2_bytes_written = log2_of(bytes_written)  # log2 of the bytes of C
"""),
    *cost("matrices"),
    *formulas("""
a_columns = a_by_columns  # A is column-major
b_columns = b_by_columns  # B is column-major
vector_a_bytes = minimum(power_of_two(row_a) * dtype, 16)  # bytes of the widest load of A, to 16
vector_b_bytes = minimum(power_of_two(row_b) * dtype, 16)  # bytes of the widest load of B, to 16
vector_c_bytes = minimum(power_of_two(N) * dtype, 16)  # bytes of the widest store of C, to 16
padded = fill < 1  # a tile is partial
"""),
    *TILE,
    *formulas("""
warp_m  # waves along M
warp_n  # waves along N
"""),
    *WARP_TILE,
    *WORKGROUP,
    given("pipeline", "pipeline code"),
    INTERWAVE,
    *formulas("""
epilogue  # default 0, cshuffle 1
pad_@  # a partial tile along @@ is handled
persistent  # persistent workgroups, which process several tiles
"""),
)

_OF_PROBLEM = (
    *("log2_M", "log2_N", "log2_K", "split_k", "log2_bytes", "log2_bytes_b", "log2_bytes_written"),
    *("log2_flops", "log2_intensity", "log2_l2_share", "a_columns", "b_columns"),
    *("vector_a_bytes", "vector_b_bytes", "vector_c_bytes"),
)
PROBLEM_COLUMNS = tuple(one for one in _FEATURES if one.name in _OF_PROBLEM)
"""The features that depend on the problem alone."""

GEMM_OWN = FeatureSchema(
    "gemm_own_1",
    "gemm_universal",
    _FEATURES,
    _INTERMEDIATES,
    {**WORD_CODES, "dtype": ELEMENT_BYTES, "pipeline": PIPELINES},
)
"""For every layout and data type; split-K and shuffled operands are counted as executed."""
