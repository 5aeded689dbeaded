"""Products of fp8 matrices with scales in Triton: C = (A scale_a) (B scale_b)^T, accumulated in fp32.

    scaled_tiles     one program a tile of C
    scaled_split_k   the depth is split over SPLIT_K programs, whose fp32 sums a second launch adds up
    scaled_tma       tiles by Hopper's tensor memory accelerator; programs stay on their compute unit

Hopper's fp8 instructions add up in registers of some 14 bits. So all kernels add the product of every step of
BLOCK_K, at most 128 deep, to sums in fp32 of their own, as block scales demand on every GPU. SWAPPED computes
the transpose, for few rows: Hopper's wide matrix instructions have at least 64.
"""

import triton
import triton.language as tl
from gemm import ADD_PARTS, AMD, parts_fit, place_of, tiles_of

from tile_oracle.triton import ScaledGemmView, minimum, scaled_gemm

BLOCK = tl.constexpr(128)


@triton.jit
def with_scales(part, factors, of_b, n, left, blocks, N, SWAPPED: tl.constexpr):
    """The product of a step with the scales of its blocks. factors: those of the rows of A; of_b: where those
    of B begin, `blocks` apart, for rows n from `left` on."""
    if n.shape[0] <= BLOCK:  # columns of one block
        factors *= tl.load(of_b + left // BLOCK * blocks)
    else:
        of_columns = tl.load(of_b + n // BLOCK * blocks, mask=n < N, other=0.0)
        part *= of_columns[:, None] if SWAPPED else of_columns[None, :]
    return part * (factors[None, :] if SWAPPED else factors[:, None])


@triton.jit
def step_of_product(
    sums, x, y, scale_a_ptr, scale_b_ptr, m, n, left, k, M, N, K, SCALE: tl.constexpr, SWAPPED: tl.constexpr
):
    """The sums with the product of a step. x: rows of A, m; y: rows of B, n, from `left` on. k: its depth."""
    part = tl.dot(y, x.T) if SWAPPED else tl.dot(x, y.T)
    if SCALE == "block":
        block = k // BLOCK
        factors = tl.load(scale_a_ptr + block.to(tl.int64) * M + m, mask=m < M, other=0.0)
        part = with_scales(part, factors, scale_b_ptr + block, n, left, tl.cdiv(K, BLOCK), N, SWAPPED)
    return sums + part


@triton.jit
def scaled(
    sums, scale_a_ptr, scale_b_ptr, m, n, M, N, SCALE: tl.constexpr, SWAPPED: tl.constexpr
):  # fmt: skip
    """A whole sum with the scales of its matrix or row, not transposed any more."""
    if SWAPPED:
        sums = sums.T
    if SCALE == "tensor":
        sums *= tl.load(scale_a_ptr) * tl.load(scale_b_ptr)
    if SCALE == "row":
        sums *= tl.load(scale_a_ptr + m, mask=m < M, other=0.0)[:, None]
        sums *= tl.load(scale_b_ptr + n, mask=n < N, other=0.0)[None, :]
    return sums


@triton.jit
def product(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, row, column, begin, end, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SCALE: tl.constexpr, SWAPPED: tl.constexpr,
):  # fmt: skip
    """The scaled fp32 sums of one tile over depths from begin to end."""
    i, j, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    m, n = row * BLOCK_M + i, column * BLOCK_N + j
    # Rows beyond a matrix are read from its first rows: that needs no mask.
    a = a_ptr + row.to(tl.int64) * BLOCK_M * K + begin
    b = b_ptr + column.to(tl.int64) * BLOCK_N * K + begin
    a_at = tl.where(m < M, i, 0)[:, None] * K + k[None, :]
    b_at = tl.where(n < N, j, 0)[:, None] * K + k[None, :]
    if SWAPPED:
        sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for depth in range(begin, end, BLOCK_K):
        there = (k < end - depth)[None, :]
        x = tl.load(a + a_at, mask=there, other=0.0)
        y = tl.load(b + b_at, mask=there, other=0.0)
        sums = step_of_product(
            sums, x, y, scale_a_ptr, scale_b_ptr, m, n, column * BLOCK_N, depth, M, N, K, SCALE, SWAPPED
        )
        a += BLOCK_K
        b += BLOCK_K
    return scaled(sums, scale_a_ptr, scale_b_ptr, m, n, M, N, SCALE, SWAPPED), m, n


@triton.jit
def store(c_ptr, sums, m, n, M, N):
    """Writes a tile in the type of the matrix."""
    at = m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(c_ptr + at, sums.to(c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
HOPPER = (
    *((128, 128, 128, 8, 3), (128, 128, 128, 8, 4), (64, 256, 128, 8, 3), (128, 64, 128, 4, 3)),
    *((64, 128, 128, 4, 3), (64, 128, 128, 4, 4), (64, 64, 128, 4, 4), (64, 64, 128, 4, 6)),
    *((64, 32, 128, 4, 5), (128, 32, 128, 4, 4), (128, 128, 64, 8, 4), (64, 128, 64, 4, 4)),
)
HOPPER_SWAPPED = (
    *((16, 64, 128, 4, 5), (16, 128, 128, 4, 4), (32, 64, 128, 4, 5), (32, 128, 128, 4, 4)),
    *((64, 64, 128, 4, 4), (64, 128, 128, 4, 4), (128, 128, 128, 8, 3), (16, 64, 128, 4, 8)),
    *((16, 256, 128, 8, 4), (32, 256, 128, 8, 3)),
)
HOPPER_SPLIT = ((64, 64, 128, 4, 4), (64, 128, 128, 4, 4), (128, 128, 128, 8, 3))
HOPPER_SPLIT_SWAPPED = (
    *((16, 64, 128, 4, 5), (16, 128, 128, 4, 4), (32, 64, 128, 4, 5), (64, 64, 128, 4, 4)),
)
CDNA = (
    *((256, 256, 128, 8, 2), (256, 128, 128, 8, 2), (128, 256, 128, 8, 2), (128, 128, 128, 8, 2)),
    *((128, 128, 128, 4, 2), (128, 64, 128, 4, 2), (64, 128, 128, 4, 2), (64, 64, 128, 4, 2)),
    *((32, 128, 128, 4, 2), (32, 64, 128, 4, 2), (16, 128, 128, 4, 2), (16, 64, 128, 4, 3)),
)
CDNA_SPLIT = ((128, 128, 128, 4, 2), (64, 64, 128, 4, 2), (32, 64, 128, 4, 2), (16, 64, 128, 4, 3))
SPLITS = (2, 4, 8)
# With RESIDENT programs a compute unit
TMA = (
    *((128, 128, 128, 8, 3, 1), (128, 128, 128, 8, 4, 1), (64, 256, 128, 8, 3, 1), (128, 64, 128, 4, 4, 2)),
    *((64, 128, 128, 4, 3, 2), (64, 128, 128, 4, 4, 2), (64, 128, 128, 4, 3, 3), (64, 64, 128, 4, 4, 3)),
    *((64, 64, 128, 4, 4, 2), (64, 128, 128, 4, 6, 1)),
)
TMA_SWAPPED = (
    *((16, 128, 128, 4, 4, 2), (32, 128, 128, 4, 4, 2), (64, 128, 128, 4, 4, 2), (16, 64, 128, 4, 6, 2)),
    *((64, 128, 128, 4, 3, 3), (32, 64, 128, 4, 6, 2), (128, 128, 128, 8, 3, 1)),
)
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")


def configurations(p: ScaledGemmView, of_hopper, of_hopper_swapped, of_cdna, **more):
    """Configurations of an architecture. AMD's use 16-wide matrix instructions."""
    if p.arch in AMD:
        # With block scales the largest tile, which is first, spills.
        few = of_cdna[p.scale == "block" and of_cdna is CDNA :]
        groups = ((few, {"SWAPPED": False, "matrix_instr_nonkdim": 16}),)
    else:
        groups = ((of_hopper, {"SWAPPED": False}), (of_hopper_swapped, {"SWAPPED": True}))
    for group, usual in groups:
        for values in group:
            yield dict(zip(NAMES, values, strict=True)) | {"GROUP_M": 8} | usual | more


def near(p: ScaledGemmView, meta):
    """Offsets within a tile are 32-bit, and few rows are what the transpose is for."""
    yield (p.K * max(meta["BLOCK_M"], meta["BLOCK_N"]) < 2**30, "a tile spans more than 2^30 elements")
    if meta["SWAPPED"]:
        yield (4 * meta["BLOCK_M"] >= p.M, "A has more than four tiles of rows")


def _deep(p: ScaledGemmView, meta):
    yield from near(p, meta)
    yield from parts_fit(meta)


def _rows_of_16_bytes(p: ScaledGemmView, meta):
    """What tensor descriptors demand of the distance between rows."""
    yield from near(p, meta)
    yield (p.K % 16 == 0, "rows of A and B do not begin at multiples of 16 bytes")
    yield (p.N % 8 == 0, "rows of C do not begin at multiples of 16 bytes")


def small(p: ScaledGemmView, meta):
    """Whether to compile for unaligned problems, too: large tiles would take long, and are slow there."""
    return meta["BLOCK_M"] * meta["BLOCK_N"] <= 32 * 64


def _tma(p: ScaledGemmView):
    names = (*NAMES, "RESIDENT")
    for group, swapped in ((TMA, False), (TMA_SWAPPED, True)):
        for values in group:
            yield dict(zip(names, values, strict=True)) | {"GROUP_M": 8, "SWAPPED": swapped}


# ---- the kernels ---------------------------------------------------------------------------------


@scaled_gemm(
    grid=lambda meta: (tiles_of(meta),),
    configs=lambda p: list(configurations(p, HOPPER, HOPPER_SWAPPED, CDNA)),
    constraints=near,
    general=small,
    archs=("sm_90", "gfx950"),
)
@triton.jit
def scaled_tiles(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K,
    SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SWAPPED: tl.constexpr,
):  # fmt: skip
    """One program a tile of C."""
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    sums, m, n = product(
        a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, row, column, 0, K, M, N, K,
        BLOCK_M, BLOCK_N, BLOCK_K, SCALE, SWAPPED,
    )  # fmt: skip
    store(c_ptr, sums, m, n, M, N)


@scaled_gemm(
    grid=lambda meta: (tiles_of(meta), meta["SPLIT_K"]),
    configs=lambda p: [
        one
        for parts in SPLITS
        for one in configurations(p, HOPPER_SPLIT, HOPPER_SPLIT_SWAPPED, CDNA_SPLIT, SPLIT_K=parts)
    ],
    arguments=lambda p: p.usual_arguments() | {"parts_ptr": p.workspace("fp32")},
    constraints=_deep,
    general=False,
    archs=("sm_90", "gfx950"),
    workspace_bytes=lambda p, meta: 4 * p.M * p.N * meta["SPLIT_K"],
    after=ADD_PARTS,
)
@triton.jit
def scaled_split_k(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, parts_ptr, M, N, K,
    SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SWAPPED: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """One program a tile and part of the depth. Parts are whole steps of BLOCK_K."""
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    part = tl.program_id(1)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    begin = min(K, part * share)
    sums, m, n = product(
        a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, row, column, begin, min(K, begin + share), M, N, K,
        BLOCK_M, BLOCK_N, BLOCK_K, SCALE, SWAPPED,
    )  # fmt: skip
    store(parts_ptr + part.to(tl.int64) * M * N, sums, m, n, M, N)


@scaled_gemm(
    grid=lambda meta: (minimum(tiles_of(meta), meta["UNITS"] * meta["RESIDENT"]),),
    configs=lambda p: list(_tma(p)),
    arguments=lambda p: p.usual_arguments() | {"UNITS": p.compute_units},
    constraints=_rows_of_16_bytes,
    aligned=(),
    archs=("sm_90",),
)
@triton.jit
def scaled_tma(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K, UNITS,
    SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SWAPPED: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """At most RESIDENT programs a compute unit."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        row, column = place_of(tile, rows, columns, GROUP_M)
        m = row * BLOCK_M + tl.arange(0, BLOCK_M)
        n = column * BLOCK_N + tl.arange(0, BLOCK_N)
        if SWAPPED:
            sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        else:
            sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x, y = a.load([row * BLOCK_M, k]), b.load([column * BLOCK_N, k])
            sums = step_of_product(
                sums, x, y, scale_a_ptr, scale_b_ptr, m, n, column * BLOCK_N, k, M, N, K, SCALE, SWAPPED
            )
        sums = scaled(sums, scale_a_ptr, scale_b_ptr, m, n, M, N, SCALE, SWAPPED)
        c.store([row * BLOCK_M, column * BLOCK_N], sums.to(c_ptr.dtype.element_ty))
