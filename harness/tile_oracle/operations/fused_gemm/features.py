"""Features of fused products for models."""

from __future__ import annotations

from collections.abc import Callable

from tile_oracle.features.feature_table import Array, Feature, FeatureTable, OperationFeatures
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.pool_columns import INTENSITY, codes, product_pool
from tile_oracle.operations.fused_gemm.problem import DTYPES, EPILOGUES
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS

_WORDS = codes(dtype=DTYPES, layout=GEMM_LAYOUTS, epilogue=EPILOGUES)


def _with(part: str) -> Callable[[FeatureTable], Array]:
    return lambda t: t.word_is("epilogue", lambda word: part in word.split("_"))


_EPILOGUE = tuple(
    Feature(f"with_{part}", _with(part), f"1 with {part} in the epilogue")
    for part in ("bias", "gelu", "tanh", "silu", "mul", "residual")
)
_PROBLEM = (
    *formulas("""
@@  # @@
batch  # batch
layouts = layout  # rcr 0, rrr 1, crr 2, ccr 3
flops = 2 * batch * M * N * K  # floating-point operations
bytes_total = 2 * batch * ((M + N) * K + M * N * (1 + with_mul + with_residual) + N * with_bias)
    # bytes of operands and result
"""),
    INTENSITY,
    *_EPILOGUE,
)
_POOL = product_pool(
    "fused_gemm",
    _PROBLEM,
    ("layouts", "intensity", *(one.name for one in _EPILOGUE)),
    _WORDS,
    logs=("M", "N", "K", "batch", "flops", "bytes_total"),
    tiles="batch * tiles_m * tiles_n * parts",
)
FEATURES = OperationFeatures(_POOL, pool=_POOL)
"""See tile_oracle.features.feature_table.OperationFeatures."""
