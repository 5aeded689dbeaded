"""GEMMs of CK Tile (see `tile_oracle.operation.descriptor`)."""

from __future__ import annotations

from tile_oracle.compiling.ck_tile.api import CkTileApi
from tile_oracle.compiling.ck_tile.unit import UnitParts, check_there, partitioner, pipeline_of, unit_text
from tile_oracle.errors import KernelError
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GemmProblem

_LETTERS = {"r": "RowMajor", "c": "ColumnMajor"}


def unit(api: CkTileApi, kernel: GemmKernel) -> str:
    """Returns the kernel's translation unit. Raises KernelError when this CK Tile does not have the
    kernel."""
    check_there(api, kernel.op)
    double_buffer = kernel.pipeline in ("compv4", "comp_async")
    a, b, c = tuple(kernel.layout)
    layouts = (_LETTERS[a], _LETTERS[b], _LETTERS[c])
    pipeline = pipeline_of(api, kernel, double_buffer, layouts)
    if kernel.persistent and not pipeline.persistent:
        raise KernelError(
            f"persistent: {pipeline.name} of this CK Tile does not declare it, and would be built as a "
            "kernel of one tile per workgroup"
        )
    rows = {"r": "p.gemm_k", "c": "p.gemm_m"}[a], {"r": "p.gemm_n", "c": "p.gemm_k"}[b]
    stride_c = {"r": "p.gemm_n", "c": "p.gemm_m"}[c]
    args = api.constructor(
        "GemmHostArgs",
        {
            "a_ptr": "p.in0",
            "b_ptr": "p.in1",
            "c_ptr": "p.out",
            "e_ptr": "p.out",
            "k_batch": "1",
            "m": "p.gemm_m",
            "n": "p.gemm_n",
            "k": "p.gemm_k",
            "stride_a": rows[0],
            "stride_b": rows[1],
            "stride_c": stride_c,
            "stride_e": stride_c,
        },
    )
    name = "GemmHostArgs" + ("<>" if api.templates["GemmHostArgs"].parameters else "")
    parts = UnitParts(
        op="TO_CK_GEMM",
        letter="g",
        layouts=layouts,
        double_buffer=double_buffer,
        partitioner=partitioner(api, spatially_local=True),
        kernel_class="GemmKernel",
        host_args=[
            f"using Args = {name};",
            "inline Args host_args(const to_ck_problem& p) {",
            f"  return Args({args});",
            "}",
        ],
        persistent=kernel.persistent,
    )
    return unit_text(api, kernel, pipeline, parts)


def problem_refusal(problem: GemmProblem) -> str | None:
    """Split-K is not adapted."""
    if problem.split_k > 1:
        return f"split_k: CK Tile's kernels are launched with k_batch 1, not {problem.split_k}"
    return None
