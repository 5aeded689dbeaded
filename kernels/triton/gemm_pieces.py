"""Matrix products in Triton with tiles whose width is no power of 2, so that more sizes of C fill the device.

A tile has BLOCK_N + MORE_N columns: a piece of BLOCK_N, and one or two pieces that are powers of 2 and
together MORE_N. Each piece is a matrix instruction of its own.

    pieces        loads by offsets, one program a tile
    tma_pieces    by Hopper's tensor memory accelerator; programs stay on their compute unit
    few_columns   up to COLUMNS columns of B, without matrix instructions: the mirror of few_rows

Hopper's matrix instructions read A from LDS once for every piece, so narrow pieces cost more than their
share of the columns. With REGISTERS the rows of A go through registers, and LDS is read once for all pieces;
on an H200 that was slower, so no configuration has it.
"""

import triton
import triton.language as tl
from gemm import (
    ADD_PARTS,
    configurations,
    few_rows,
    near,
    operands_and_order,
    parts_fit,
    place_of,
    row_offsets,
    small,
    tiles,
    tiles_of,
)
from gemm_tma import rows_of_16_bytes, tensor, tile_at, tma_split_k, tma_swapped

from tile_oracle.triton import GemmView, cdiv, gemm, minimum


@triton.jit
def in_registers(x, K):
    """The same values, of which Triton does not see that they come from LDS: K is never 0."""
    return tl.where(K > 0, x, 0.0).to(x.dtype)


@triton.jit
def piece_at(first, N, FROM: tl.constexpr, WIDTH: tl.constexpr, CONTIGUOUS: tl.constexpr):
    """Offsets of a piece's columns from the tile's first; columns beyond B are its first where that is read
    without a mask."""
    n = FROM + tl.arange(0, WIDTH)
    if not CONTIGUOUS:
        n = tl.where(first + n < N, n, 0)
    return n


@triton.jit
def load_piece(b, n, k_there, first, N, k, stride_bk, stride_bn, B_BY_ROW: tl.constexpr):
    """A piece's part of B: as many rows as k has."""
    at = k[:, None] * stride_bk + n[None, :] * stride_bn
    there = k_there[:, None]
    if B_BY_ROW:
        there = there & (first + n < N)[None, :]
    return tl.load(b + at, mask=there, other=0.0)


@triton.jit
def store_piece(c_ptr, sums, row, first, M, N, stride_cm, FROM: tl.constexpr):
    """Writes a piece to a matrix that lies by rows."""
    m, n = tl.arange(0, sums.shape[0]), FROM + tl.arange(0, sums.shape[1])
    there = (row * sums.shape[0] + m < M)[:, None] & (first + n < N)[None, :]
    c = c_ptr + row.to(tl.int64) * sums.shape[0] * stride_cm + first.to(tl.int64)
    tl.store(c + m[:, None] * stride_cm + n[None, :], sums.to(c_ptr.dtype.element_ty), mask=there)


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, MORE_N, BLOCK_K, num_warps, num_stages. The first spills where B lies by rows.
PIECES = (
    *((32, 64, 16, 128, 4, 7), (64, 64, 16, 128, 4, 5), (64, 64, 48, 128, 4, 4), (128, 128, 16, 64, 8, 4)),
    *((16, 32, 8, 128, 4, 12), (16, 32, 16, 128, 4, 10), (16, 32, 24, 128, 4, 10), (16, 64, 8, 128, 4, 9)),
    *((16, 64, 16, 128, 4, 7), (16, 64, 48, 128, 4, 6), (128, 256, 32, 64, 8, 3), (128, 256, 64, 64, 8, 3)),
)
TMA_PIECES = ((128, 256, 32, 64, 8, 4), (128, 256, 64, 64, 8, 3))
# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages: few tiles, all of the depth on its way at once.
DEEP = (
    *((16, 64, 128, 4, 10), (16, 128, 128, 4, 5), (16, 32, 256, 4, 8), (64, 32, 128, 4, 9)),
    *((64, 64, 64, 4, 12), (64, 128, 64, 4, 9), (128, 64, 64, 4, 8)),
)
# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
SWAPPED = ((16, 64, 128, 4, 10), (32, 64, 128, 4, 8))
# The same with SPLIT_K
SPLIT_SWAPPED = ((16, 64, 128, 4, 8, 3), (16, 64, 128, 4, 8, 5))
# ROWS, BLOCK_N, BLOCK_K, num_warps, STAGES
MORE_FEW_ROWS = (
    *((1, 8, 256, 2, 4), (1, 16, 512, 8, 3), (1, 32, 256, 8, 3), (2, 4, 512, 2, 4)),
    *((2, 16, 256, 4, 4), (4, 4, 512, 4, 3)),
)
# COLUMNS, BLOCK_M, BLOCK_K, num_warps, STAGES
FEW_COLUMNS = ((1, 8, 512, 4, 4), (1, 16, 256, 4, 4), (2, 8, 512, 4, 4), (4, 8, 256, 4, 4))
NAMES = ("BLOCK_M", "BLOCK_N", "MORE_N", "BLOCK_K", "num_warps", "num_stages")


def _pieces(p: GemmView):
    more = {"GROUP_M": 8, "REGISTERS": False}
    return [dict(zip(NAMES, values, strict=True)) | more for values in PIECES[p.layout[1] == "r" :]]


def _tma_pieces(p: GemmView):
    more = {"GROUP_M": 8, "REGISTERS": False, "RESIDENT": 1, "FLATTEN": False}
    return [dict(zip(NAMES, values, strict=True)) | more for values in TMA_PIECES]


def tiles_of_pieces(meta):
    """The tiles of C."""
    return cdiv(meta["M"], meta["BLOCK_M"]) * cdiv(meta["N"], meta["BLOCK_N"] + meta["MORE_N"])


# ---- the kernels ---------------------------------------------------------------------------------


@gemm(
    grid=lambda meta: (tiles_of_pieces(meta),),
    configs=_pieces,
    arguments=operands_and_order,
    constraints=near,
    general=False,
    archs=("sm_90",),
)
@triton.jit
def pieces(
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
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MORE_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    REGISTERS: tl.constexpr,
):
    """One program a tile of C."""
    LAST_N: tl.constexpr = MORE_N & -MORE_N
    MIDDLE_N: tl.constexpr = MORE_N - LAST_N
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE_N), GROUP_M)
    first = column * (BLOCK_N + MORE_N)
    m = row_offsets(row, M, BLOCK_M, not A_BY_ROW)
    k = tl.arange(0, BLOCK_K)
    m_there = row * BLOCK_M + m < M
    a_at = m[:, None] * stride_am + k[None, :] * stride_ak
    a = a_ptr + row.to(tl.int64) * BLOCK_M * stride_am
    b = b_ptr + first.to(tl.int64) * stride_bn
    n = piece_at(first, N, 0, BLOCK_N, B_BY_ROW)
    n_last = piece_at(first, N, BLOCK_N + MIDDLE_N, LAST_N, B_BY_ROW)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    last = tl.zeros((BLOCK_M, LAST_N), dtype=tl.float32)
    if MIDDLE_N > 0:
        n_middle = piece_at(first, N, BLOCK_N, MIDDLE_N, B_BY_ROW)
        middle = tl.zeros((BLOCK_M, MIDDLE_N), dtype=tl.float32)
    for depth in range(0, K, BLOCK_K):
        k_there = k < K - depth
        if A_BY_ROW:
            x = tl.load(a + a_at, mask=k_there[None, :], other=0.0)
        else:
            x = tl.load(a + a_at, mask=m_there[:, None] & k_there[None, :], other=0.0)
        if REGISTERS:
            x = in_registers(x, K)
        y = load_piece(b, n_last, k_there, first, N, k, stride_bk, stride_bn, B_BY_ROW)
        last = tl.dot(x, y, last)
        if MIDDLE_N > 0:
            y = load_piece(b, n_middle, k_there, first, N, k, stride_bk, stride_bn, B_BY_ROW)
            middle = tl.dot(x, y, middle)
        y = load_piece(b, n, k_there, first, N, k, stride_bk, stride_bn, B_BY_ROW)
        sums = tl.dot(x, y, sums)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    store_piece(c_ptr, sums, row, first, M, N, stride_cm, 0)
    if MIDDLE_N > 0:
        store_piece(c_ptr, middle, row, first, M, N, stride_cm, BLOCK_N)
    store_piece(c_ptr, last, row, first, M, N, stride_cm, BLOCK_N + MIDDLE_N)


@gemm(
    grid=lambda meta: (minimum(tiles_of_pieces(meta), meta["UNITS"] * meta["RESIDENT"]),),
    layouts=("rcr",),
    configs=_tma_pieces,
    arguments=lambda p: operands_and_order(p) | {"UNITS": p.compute_units},
    constraints=rows_of_16_bytes,
    general=False,
    archs=("sm_90",),
)
@triton.jit
def tma_pieces(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    UNITS,
    stride_cm,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MORE_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    REGISTERS: tl.constexpr,
    RESIDENT: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """At most RESIDENT programs a compute unit. C is stored without descriptors, which take time to make."""
    LAST_N: tl.constexpr = MORE_N & -MORE_N
    MIDDLE_N: tl.constexpr = MORE_N - LAST_N
    a = tensor(a_ptr, M, K, A_BY_ROW, BLOCK_M, BLOCK_K)
    b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, BLOCK_N)
    last_b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, LAST_N)
    if MIDDLE_N > 0:
        middle_b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, MIDDLE_N)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=FLATTEN):
        row, column = place_of(tile, rows, columns, GROUP_M)
        m, first = row * BLOCK_M, column * (BLOCK_N + MORE_N)
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        last = tl.zeros((BLOCK_M, LAST_N), dtype=tl.float32)
        if MIDDLE_N > 0:
            middle = tl.zeros((BLOCK_M, MIDDLE_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x = tile_at(a, m, k, A_BY_ROW)
            if REGISTERS:
                x = in_registers(x, K)
            last = tl.dot(x, tile_at(last_b, k, first + BLOCK_N + MIDDLE_N, B_BY_ROW), last)
            if MIDDLE_N > 0:
                middle = tl.dot(x, tile_at(middle_b, k, first + BLOCK_N, B_BY_ROW), middle)
            sums = tl.dot(x, tile_at(b, k, first, B_BY_ROW), sums)
        store_piece(c_ptr, sums, row, first, M, N, stride_cm, 0)
        if MIDDLE_N > 0:
            store_piece(c_ptr, middle, row, first, M, N, stride_cm, BLOCK_N)
        store_piece(c_ptr, last, row, first, M, N, stride_cm, BLOCK_N + MIDDLE_N)


@gemm(
    grid=lambda meta: (cdiv(meta["M"], meta["BLOCK_M"]),),
    layouts=("rcr",),
    configs=[
        {"COLUMNS": columns, "BLOCK_M": m, "BLOCK_K": k, "num_warps": warps, "STAGES": stages}
        for columns, m, k, warps, stages in FEW_COLUMNS
    ],
    constraints=lambda p, meta: [
        (meta["COLUMNS"] >= p.N, "B has more columns"),
        (meta["COLUMNS"] < 2 * p.N, "B has at most half as many columns"),
        (p.K * meta["BLOCK_M"] < 2**30, "a tile spans more than 2^30 elements"),
    ],
)
@triton.jit
def few_columns(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_cm,
    COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Each program reads BLOCK_M rows of A once, as wide loads, and sums over the threads at the end."""
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, COLUMNS), tl.arange(0, BLOCK_K)
    row = tl.program_id(0)
    a = a_ptr + row.to(tl.int64) * BLOCK_M * K
    m_there, n_there = row * BLOCK_M + m < M, n < N
    sums = tl.zeros((COLUMNS, BLOCK_M, BLOCK_K), dtype=tl.float32)
    for depth in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k_there = k < K - depth
        y = tl.load(
            b_ptr + depth + n[:, None] * K + k[None, :], mask=n_there[:, None] & k_there[None, :], other=0.0
        )
        x = tl.load(
            a + depth + m[:, None] * K + k[None, :], mask=m_there[:, None] & k_there[None, :], other=0.0
        )
        sums += y.to(tl.float32)[:, None, :] * x.to(tl.float32)[None, :, :]
    total = tl.sum(sums, axis=2)
    c = c_ptr + row.to(tl.int64) * BLOCK_M * stride_cm + n[:, None] + m[None, :] * stride_cm
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=n_there[:, None] & m_there[None, :])


# ---- more configurations of other files' kernels -------------------------------------------------

gemm(
    grid=lambda meta: (tiles_of(meta),),
    dtypes=("bf16", "fp16"),
    configs=lambda p: configurations(p, DEEP, ()),
    arguments=operands_and_order,
    constraints=near,
    general=small,
    archs=("sm_90",),
)(tiles)


def _few(p: GemmView, meta):
    yield from rows_of_16_bytes(p, meta)
    yield (4 * meta["BLOCK_M"] >= p.M, "A has more than four tiles of rows")


gemm(
    grid=lambda meta: (tiles_of(meta),),
    configs=[
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages}
        for m, n, k, warps, stages in SWAPPED
    ],
    arguments=operands_and_order,
    constraints=_few,
    aligned=(),
    archs=("sm_90",),
)(tma_swapped)


def _deep(p: GemmView, meta):
    yield from _few(p, meta)
    yield from parts_fit(meta)


gemm(
    grid=lambda meta: (tiles_of(meta), meta["SPLIT_K"]),
    configs=[
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages, "SPLIT_K": parts}
        | {"GROUP_M": 8, "SWAPPED": True}
        for m, n, k, warps, stages, parts in SPLIT_SWAPPED
    ],
    arguments=lambda p: operands_and_order(p) | {"parts_ptr": p.workspace("fp32")},
    constraints=_deep,
    aligned=(),
    archs=("sm_90",),
    workspace_bytes=lambda p, meta: 4 * p.M * p.N * meta["SPLIT_K"],
    after=ADD_PARTS,
)(tma_split_k)

gemm(
    grid=lambda meta: (cdiv(meta["N"], meta["BLOCK_N"]),),
    layouts=("rcr",),
    configs=[
        {"ROWS": rows, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "STAGES": stages}
        for rows, n, k, warps, stages in MORE_FEW_ROWS
    ],
    constraints=lambda p, meta: [
        (meta["ROWS"] >= p.M, "A has more rows"),
        (meta["ROWS"] < 2 * p.M, "A has at most half as many rows"),
        (p.K * meta["BLOCK_N"] < 2**30, "a tile spans more than 2^30 elements"),
    ],
    archs=("sm_90",),
)(few_rows)
