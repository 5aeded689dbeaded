"""A GEMM in Triton whose mask of A sends it through registers, while B is copied to LDS asynchronously."""

import triton
import triton.language as tl

from tile_oracle.triton import gemm


@gemm(
    dtypes=["bf16"],
    layouts=["rcr"],
    grid=lambda meta: (triton.cdiv(meta["M"], meta["TILE_M"]), triton.cdiv(meta["N"], meta["TILE_N"])),
)
@triton.autotune(
    configs=[triton.Config({"TILE_M": 64, "TILE_N": 128, "TILE_K": 32}, num_warps=4, num_stages=3)],
    key=["M", "N", "K"],
)
@triton.jit
def odd(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
        TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for begin in range(0, K, TILE_K):
        k = begin + depth
        some = (row[:, None] < M) & (2 * k[None, :] + 1 < 2 * K)
        a = tl.load(a_ptr + row[:, None] * stride_am + k[None, :] * stride_ak, mask=some, other=0.0)
        there = (k[:, None] < K) & (column[None, :] < N)
        b = tl.load(b_ptr + k[:, None] * stride_bk + column[None, :] * stride_bn, mask=there, other=0.0)
        total = tl.dot(a, b, total)
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(c_ptr + row[:, None] * stride_cm + column[None, :] * stride_cn,
             total.to(c_ptr.dtype.element_ty), mask=inside)  # fmt: skip
