"""The shipped pools of Triton kernels have these functions and as many kernels for every kind of problem."""

from __future__ import annotations

from functools import cache

import pytest

from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.compiling.triton.kernel_source import TritonSource, open_triton
from tile_oracle.kernel import NamedKernel
from tile_oracle.operation import Kind, operation_named

SIZES = {"scaled_gemm": (68, 24), "fused_gemm": (30, 28), "fused_moe": (52, 20)}
"""Operation -> kernels of a kind on sm_90 and gfx950."""
FP8_EXPERTS = {"block": (41, 13), "row": (47, 13), "tensor": (47, 13)}
"""The same, of experts of fp8, by scale."""
FUNCTIONS = {
    "scaled_gemm": (
        ("scaled_tiles", "scaled_split_k"),
        ("scaled_tma", "scaled_warps", "scaled_warps_split_k"),
    ),
    "fused_gemm": (("fused_tiles", "fused_split_k"), ("fused_tma",)),
    "fused_moe": (("experts", "experts_persistent"), ("experts_tma",)),
}
"""Operation -> functions on both, and on sm_90 alone."""
MX_FUNCTIONS, MX_SIZE = {"mx_tiles", "mx_split_k"}, 20
"""Of scaled products with MX scales, which sm_90 has none of."""


@cache
def shipped(arch: str) -> TritonSource:
    return open_triton(arch, "")


def is_mx(kind: Kind) -> bool:
    return kind.words.get("scale") == "mx"


def lacks_one(kind: Kind) -> bool:
    """Whether one kernel of gfx950 cannot compute the kind."""
    return str(kind.words.get("layout", "")).startswith("c") or (kind.op, kind.words.get("scale")) == (
        "scaled_gemm",
        "block",
    )


@pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_every_kind_has_a_pool(op: str, arch: str) -> None:
    source = shipped(arch)
    kinds = [kind for kind in source.kinds if kind.op == op]
    all_kinds = operation_named(op).kinds({})
    assert set(kinds) == {kind for kind in all_kinds if arch == "gfx950" or not is_mx(kind)}
    everywhere, of_hopper = FUNCTIONS[op]
    for kind in kinds:
        pool = source.pool(kind)
        functions = {one.function for one in pool if isinstance(one, NamedKernel)}
        if is_mx(kind):
            assert (functions, len(pool)) == (MX_FUNCTIONS, MX_SIZE)
            continue
        assert functions == {*everywhere, *(of_hopper if arch == "sm_90" else ())}
        on_hopper, on_cdna = SIZES[op]
        if op == "fused_moe" and kind.dtype == "fp8_e4m3":
            on_hopper, on_cdna = FP8_EXPERTS[str(kind.words["scale"])]
        assert len(pool) == (on_hopper if arch == "sm_90" else on_cdna - lacks_one(kind))
