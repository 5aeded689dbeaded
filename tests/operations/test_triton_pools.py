"""The shipped pools of Triton kernels have these functions and as many kernels for every kind of problem."""

from __future__ import annotations

import pytest

from tests.samples import slow
from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.compiling.triton.kernel_source import open_triton
from tile_oracle.kernel import NamedKernel
from tile_oracle.operation import Kind, operation_named
from tile_oracle.operations.paged_attention.problem import LATENT

SIZES = {"scaled_gemm": (68, 24), "fused_gemm": (30, 28), "fused_moe": (52, 20)}
"""Operation -> kernels of a kind on sm_90 and gfx950."""
FP8_EXPERTS = {"block": (41, 13), "row": (47, 13), "tensor": (47, 13)}
"""The same, of experts of fp8, by scale."""
PAGED = ((61, 35), (43, 33), (66, 30))
"""The same, of paged attention with heads up to 128, with larger ones, and for MLA."""
FUNCTIONS = {
    "scaled_gemm": (
        ("scaled_tiles", "scaled_split_k"),
        ("scaled_tma", "scaled_warps", "scaled_warps_split_k"),
    ),
    "fused_gemm": (("fused_tiles", "fused_split_k"), ("fused_tma",)),
    "fused_moe": (("experts", "experts_persistent"), ("experts_tma",)),
    "paged_attention": (("paged", "paged_split"), ()),
}
"""Operation -> functions on both, and on sm_90 alone."""
MX_FUNCTIONS, MX_SIZE = {"mx_tiles", "mx_split_k"}, 20
"""Of scaled products with MX scales, which sm_90 has none of."""


def is_mx(kind: Kind) -> bool:
    return kind.words.get("scale") == "mx"


def lacks_one(kind: Kind) -> bool:
    """Whether one kernel of gfx950 cannot compute the kind."""
    of_blocks = kind.op == "scaled_gemm" and kind.words.get("scale") == "block"
    return of_blocks or str(kind.words.get("layout", "")).startswith("c")


def sizes(kind: Kind) -> tuple[int, int]:
    """The kernels of a kind on sm_90, and on gfx950 unless it lacks one."""
    if kind.op == "paged_attention":
        head_dim = int(kind.words["head_dim"])
        return PAGED[(head_dim > 128) + (head_dim == LATENT)]
    of_fp8 = kind.op == "fused_moe" and kind.dtype == "fp8_e4m3"
    return FP8_EXPERTS[str(kind.words["scale"])] if of_fp8 else SIZES[kind.op]


@pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
@pytest.mark.parametrize("arch", ["gfx950", *slow("sm_90")])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_every_kind_has_a_pool(op: str, arch: str) -> None:
    source = open_triton(arch, "")
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
        on_hopper, on_cdna = sizes(kind)
        assert len(pool) == (on_hopper if arch == "sm_90" else on_cdna - lacks_one(kind))
