"""Products of MX matrices (OCP Microscaling v1.0) in Triton, by gfx950's matrix instructions with scales.

    mx_tiles     one program a tile of C
    mx_split_k   the depth is split over SPLIT_K programs, whose fp32 sums a second launch adds up

A and B are e2m1, two in a byte along K, or fp8, and have an e8m0 for each 32 depths of a row.
"""

import triton
import triton.language as tl
from gemm import ADD_PARTS, parts_fit, place_of, tiles_of

from tile_oracle.triton import ScaledGemmView, scaled_gemm

GROUP = tl.constexpr(32)
"""Elements that share a scale."""


@triton.jit
def product(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, row, column, begin, end, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PAIR: tl.constexpr, OF_A: tl.constexpr, OF_B: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of one tile over depths from begin to end. PAIR: the elements of a byte."""
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    k, group = tl.arange(0, BLOCK_K // PAIR), tl.arange(0, BLOCK_K // GROUP)
    m, n = row * BLOCK_M + i, column * BLOCK_N + j
    # Rows beyond a matrix are read from its first rows: that needs no mask.
    i, j = tl.where(m < M, i, 0), tl.where(n < N, j, 0)
    # All are whole groups, so Triton sees that rows begin at multiples of 16 bytes.
    SIZE: tl.constexpr = GROUP // PAIR
    groups_of_row, first = K // GROUP, begin // GROUP
    bytes_of_row = groups_of_row * SIZE
    a = a_ptr + row.to(tl.int64) * BLOCK_M * bytes_of_row + first * SIZE
    b = b_ptr + column.to(tl.int64) * BLOCK_N * bytes_of_row + first * SIZE
    of_a = scale_a_ptr + row.to(tl.int64) * BLOCK_M * groups_of_row + first
    of_b = scale_b_ptr + column.to(tl.int64) * BLOCK_N * groups_of_row + first
    a_at, b_at = i[:, None] * bytes_of_row + k[None, :], j[None, :] * bytes_of_row + k[:, None]
    of_a_at = i[:, None] * groups_of_row + group[None, :]
    of_b_at = j[:, None] * groups_of_row + group[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range((end - begin) // BLOCK_K):
        x, x_scales = tl.load(a + a_at), tl.load(of_a + of_a_at)
        y, y_scales = tl.load(b + b_at), tl.load(of_b + of_b_at)
        sums = tl.dot_scaled(x, x_scales, OF_A, y, y_scales, OF_B, sums)
        a += BLOCK_K // PAIR
        b += BLOCK_K // PAIR
        of_a += BLOCK_K // GROUP
        of_b += BLOCK_K // GROUP
    left = (end - begin) % BLOCK_K // GROUP
    if left > 0:
        scaled = (group < left)[None, :]
        x = tl.load(a + a_at, mask=(k < left * SIZE)[None, :], other=0.0)
        y = tl.load(b + b_at, mask=(k < left * SIZE)[:, None], other=0.0)
        x_scales = tl.load(of_a + of_a_at, mask=scaled, other=0)
        y_scales = tl.load(of_b + of_b_at, mask=scaled, other=0)
        sums = tl.dot_scaled(x, x_scales, OF_A, y, y_scales, OF_B, sums)
    return sums, m, n


@triton.jit
def store(c_ptr, sums, m, n, M, N):
    """Writes a tile in the type of the matrix."""
    at = m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(c_ptr + at, sums.to(c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
TILES = (
    *((256, 128, 256, 8, 2), (128, 256, 256, 8, 2), (128, 128, 256, 4, 2), (128, 64, 256, 4, 2)),
    *((64, 128, 256, 4, 2), (64, 64, 256, 4, 2), (32, 128, 256, 4, 2), (32, 64, 256, 4, 2)),
    *((16, 128, 256, 4, 2), (16, 64, 256, 4, 2), (32, 64, 512, 4, 2)),
)
SPLIT = ((64, 64, 256, 4, 2), (32, 64, 256, 4, 2), (16, 64, 256, 4, 2))
SPLITS = (2, 4, 8)
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
FORMATS = {"fp4_e2m1": (2, "e2m1", "e2m1"), "fp8_e4m3": (1, "e4m3", "e4m3"), "fp8_e5m2": (1, "e5m2", "e4m3")}


def _configurations(p: ScaledGemmView, tiles, **more):
    """Configurations with 16-wide matrix instructions. Tiles of fp8 have half the depth: as many bytes."""
    for m, n, k, *others in tiles:
        values = (m, n, k if p.dtype == "fp4_e2m1" else k // 2, *others)
        usual = {"GROUP_M": 8, "matrix_instr_nonkdim": 16}
        yield dict(zip(NAMES, values, strict=True)) | usual | more


def _arguments(p: ScaledGemmView):
    """The usual ones, and the formats of A and B."""
    return p.usual_arguments() | dict(zip(("PAIR", "OF_A", "OF_B"), FORMATS[p.dtype], strict=True))


def _near(p: ScaledGemmView, meta):
    """Offsets within a tile are 32-bit."""
    yield (p.K * max(meta["BLOCK_M"], meta["BLOCK_N"]) < 2**30, "a tile spans more than 2^30 elements")


def _deep(p: ScaledGemmView, meta):
    yield from _near(p, meta)
    yield from parts_fit(meta)


# ---- the kernels ---------------------------------------------------------------------------------

MX = {"dtypes": tuple(FORMATS), "scales": ("mx",), "archs": ("gfx950",), "general": False}


@scaled_gemm(
    grid=lambda meta: (tiles_of(meta),),
    configs=lambda p: list(_configurations(p, TILES)),
    arguments=_arguments,
    constraints=_near,
    **MX,
)
@triton.jit
def mx_tiles(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PAIR: tl.constexpr, OF_A: tl.constexpr, OF_B: tl.constexpr,
):  # fmt: skip
    """One program a tile of C."""
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    sums, m, n = product(
        a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, row, column, 0, K, M, N, K,
        BLOCK_M, BLOCK_N, BLOCK_K, PAIR, OF_A, OF_B,
    )  # fmt: skip
    store(c_ptr, sums, m, n, M, N)


@scaled_gemm(
    grid=lambda meta: (tiles_of(meta), meta["SPLIT_K"]),
    configs=lambda p: [one for parts in SPLITS for one in _configurations(p, SPLIT, SPLIT_K=parts)],
    arguments=lambda p: _arguments(p) | {"parts_ptr": p.workspace("fp32")},
    constraints=_deep,
    workspace_bytes=lambda p, meta: 4 * p.M * p.N * meta["SPLIT_K"],
    after=ADD_PARTS,
    **MX,
)
@triton.jit
def mx_split_k(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, parts_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PAIR: tl.constexpr, OF_A: tl.constexpr, OF_B: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """One program a tile and part of the depth. Parts are whole steps of BLOCK_K."""
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    part = tl.program_id(1)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    begin = min(K, part * share)
    sums, m, n = product(
        a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, row, column, begin, min(K, begin + share), M, N, K,
        BLOCK_M, BLOCK_N, BLOCK_K, PAIR, OF_A, OF_B,
    )  # fmt: skip
    store(parts_ptr + part.to(tl.int64) * M * N, sums, m, n, M, N)
