"""A matrix product in Triton, declared for tile-oracle. docs/bring_your_own_kernels.md explains it."""

import triton
import triton.language as tl

from tile_oracle.triton import gemm

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=4),
    triton.Config(
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "waves_per_eu": 2}, num_warps=4, num_stages=2
    ),
]


@gemm(
    dtypes=["bf16", "fp16"],
    layouts=["rcr"],
    grid=lambda meta: (triton.cdiv(meta["M"], meta["BLOCK_M"]), triton.cdiv(meta["N"], meta["BLOCK_N"])),
    constraints=lambda p, meta: [(p.K % meta["BLOCK_K"] == 0, "K is not a multiple of BLOCK_K")],
)
@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One program a tile of C. Rows and columns beyond the matrices are read from their beginnings."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + (n % N)[None, :] * stride_bn
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        sums = tl.dot(tl.load(a), tl.load(b), sums)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    c = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c, sums.to(c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])
