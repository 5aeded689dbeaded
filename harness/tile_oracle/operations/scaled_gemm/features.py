"""The features of scaled products for models."""

from __future__ import annotations

from tile_oracle.features.feature_table import OperationFeatures
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.pool_columns import INTENSITY, codes, product_pool
from tile_oracle.operations.scaled_gemm.problem import OPERAND_DTYPES, SCALES

_WORDS = codes(dtype=OPERAND_DTYPES, scale=SCALES)
_BYTES = 'where(dtype == "fp4_e2m1", 0.5, 1.0)'
"""Of an element of A or B."""
_PROBLEM = (
    *formulas(f"""
@@  # @@
is_e5m2 = dtype  # 1 if A is e5m2, 2 if it is e2m1
scales = scale  # one scale a matrix: 0, a row: 1, a block: 2, by MX: 3
flops = 2 * M * N * K  # floating-point operations
bytes_total = (M + N) * K * {_BYTES} + 2 * M * N  # bytes of A, B and C
"""),
    INTENSITY,
)
_POOL = product_pool(
    "scaled_gemm",
    _PROBLEM,
    ("is_e5m2", "scales", "intensity"),
    _WORDS,
    logs=("M", "N", "K", "flops", "bytes_total"),
    tiles="tiles_m * tiles_n * parts",
    element_bytes=_BYTES,
)
FEATURES = OperationFeatures(_POOL, pool=_POOL)
"""See tile_oracle.features.feature_table.OperationFeatures."""
