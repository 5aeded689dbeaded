"""Slices of fused products."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tile_oracle.operation.descriptor import Belongs
from tile_oracle.operations.fused_gemm.epilogues import EPILOGUES
from tile_oracle.operations.gemm.slices import GEMM_SLICES


def _with(epilogue: str) -> Callable[..., bool]:
    return lambda problem: problem.epilogue == epilogue


FUSED_SLICES: Mapping[str, Belongs] = {
    **{name: belongs for name, belongs in GEMM_SLICES.items() if name != "split K"},
    "batch": lambda p: p.batch > 1,
    **{f"epilogue {name}": _with(name) for name in EPILOGUES},
}
"""Name -> whether a problem is in the slice."""
