"""Matrix products in Triton, stream-K: every program does the same number of steps of the depth.

The steps of the tiles that do not fill the device are dealt out evenly, whatever tile they belong to; then
programs take whole tiles. A program that did a part of a tile leaves its fp32 sum in the workspace, and a
second launch adds the sums of such tiles up, in the order of the depth, so that results repeat. See M. Osama
et al., Stream-K, 2023, "two-tile".

    stream_k        loads by offsets, all architectures
    tma_stream_k    loads by Hopper's tensor memory accelerator
"""

import triton
import triton.language as tl
from gemm import configurations, near, operands_and_order, place_of, product, small, store
from gemm_tma import both_halves, rows_of_16_bytes, tensor, tile_at

from tile_oracle.triton import GemmView, cdiv, gemm, launch, minimum

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
HOPPER = ((128, 128, 64, 8, 4), (64, 64, 64, 4, 5))
HOPPER_TMA = ((64, 256, 64, 4, 4), (128, 128, 64, 4, 4), (128, 128, 64, 8, 4), (64, 128, 64, 4, 5))
CDNA = ((256, 128, 64, 8, 2), (128, 128, 64, 4, 2), (64, 128, 64, 4, 2), (64, 64, 128, 4, 2))
ADDED_ROWS = 16


@triton.jit
def streamed_tiles(tiles, programs):
    """How many tiles are dealt out in steps: none if whole tiles fill the device, else 1 to 2 a program."""
    return tl.where(tiles % programs == 0, 0, tiles - max(tiles // programs - 1, 0) * programs)


@triton.jit
def work_of(turn, tiles, steps):
    """(tile, first step, step after the last, whether these are all) of a program's turn."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    streamed = streamed_tiles(tiles, programs)
    share = tl.cdiv(streamed * steps, programs)
    begin = min(program * share, streamed * steps)
    end = min(begin + share, streamed * steps)
    parts = tl.where(begin < end, (end - 1) // steps - begin // steps + 1, 0)
    part = begin // steps + turn
    in_parts = turn < parts
    tile = tl.where(in_parts, part, streamed + (turn - parts) * programs + program)
    first = tl.where(in_parts, max(begin - part * steps, 0), 0)
    last = tl.where(in_parts, min(end - part * steps, steps), steps)
    return tile, first, last


@triton.jit
def turns_of(tiles, steps):
    """How many parts of tiles and whole tiles a program has."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    streamed = streamed_tiles(tiles, programs)
    share = tl.cdiv(streamed * steps, programs)
    begin = min(program * share, streamed * steps)
    end = min(begin + share, streamed * steps)
    parts = tl.where(begin < end, (end - 1) // steps - begin // steps + 1, 0)
    return parts + (tiles - streamed) // programs


@triton.jit
def leave(parts_ptr, sums, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Leaves a partial sum: of a program at most one from within a tile, and one from a tile's beginning."""
    m, n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    slot = 2 * tl.program_id(0) + tl.where(first == 0, 1, 0)
    at = m[:, None] * BLOCK_N + n[None, :]
    tl.store(parts_ptr + slot.to(tl.int64) * (BLOCK_M * BLOCK_N) + at, sums)


@triton.jit
def add_streamed(
    parts_ptr,
    c_ptr,
    M,
    N,
    K,
    UNITS,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ADDED_ROWS: tl.constexpr,
):
    """Adds up ADDED_ROWS rows of a tile that several programs did. The first of them began the tile."""
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    streamed = streamed_tiles(rows * columns, UNITS)
    if tile < streamed:
        share = tl.cdiv(streamed * steps, UNITS)
        begin = tile * steps
        first, last = begin // share, (begin + steps - 1) // share
        if first != last:
            row, column = place_of(tile, rows, columns, GROUP_M)
            m = tl.program_id(1) * ADDED_ROWS + tl.arange(0, ADDED_ROWS)
            n = tl.arange(0, BLOCK_N)
            at = m[:, None] * BLOCK_N + n[None, :]
            total = tl.zeros((ADDED_ROWS, BLOCK_N), dtype=tl.float32)
            for program in range(first, last + 1):
                slot = 2 * program + tl.where(program == first, 1, 0)
                total += tl.load(parts_ptr + slot.to(tl.int64) * (BLOCK_M * BLOCK_N) + at)
            there = (row * BLOCK_M + m < M)[:, None] & (column * BLOCK_N + n < N)[None, :]
            c = c_ptr + row.to(tl.int64) * BLOCK_M * N + column.to(tl.int64) * BLOCK_N
            tl.store(c + m[:, None] * N + n[None, :], total.to(c_ptr.dtype.element_ty), mask=there)


# ---- the kernels ---------------------------------------------------------------------------------


def _arguments(p: GemmView):
    return operands_and_order(p) | {"parts_ptr": p.workspace("fp32")}


def _workspace_bytes(p: GemmView, meta):
    """Two partial tiles a program."""
    return p.compute_units * (2 * 4 * meta["BLOCK_M"] * meta["BLOCK_N"])


AFTER = [
    launch(
        add_streamed,
        arguments=lambda p: {
            "parts_ptr": p.workspace("fp32"),
            "c_ptr": p.c,
            "M": p.M,
            "N": p.N,
            "K": p.K,
            "UNITS": p.compute_units,
            "ADDED_ROWS": ADDED_ROWS,
        },
        grid=lambda meta: (
            minimum(cdiv(meta["M"], meta["BLOCK_M"]) * cdiv(meta["N"], meta["BLOCK_N"]), 2 * meta["UNITS"]),
            meta["BLOCK_M"] // ADDED_ROWS,
        ),
    )
]


@gemm(
    grid=lambda meta: (meta["UNITS"],),
    configs=lambda p: configurations(p, HOPPER, CDNA),
    arguments=lambda p: _arguments(p) | {"UNITS": p.compute_units},
    constraints=near,
    general=small,
    workspace_bytes=_workspace_bytes,
    after=AFTER,
)
@triton.jit
def stream_k(
    a_ptr,
    b_ptr,
    c_ptr,
    parts_ptr,
    M,
    N,
    K,
    UNITS,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """As many programs as compute units."""
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for turn in range(0, turns_of(rows * columns, steps)):
        tile, first, last = work_of(turn, rows * columns, steps)
        row, column = place_of(tile, rows, columns, GROUP_M)
        sums = product(
            a_ptr, b_ptr, row, column, first * BLOCK_K, min(K, last * BLOCK_K), M, N,
            stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, A_BY_ROW, B_BY_ROW,
        )  # fmt: skip
        if last - first == steps:
            store(c_ptr, sums, row, column, M, N, stride_cm, BLOCK_M, BLOCK_N)
        else:
            leave(parts_ptr, sums, first, BLOCK_M, BLOCK_N)


@gemm(
    grid=lambda meta: (meta["UNITS"],),
    configs=lambda p: configurations(p, HOPPER_TMA, ()),
    arguments=lambda p: _arguments(p) | {"UNITS": p.compute_units},
    constraints=rows_of_16_bytes,
    aligned=(),
    archs=("sm_90",),
    workspace_bytes=_workspace_bytes,
    after=AFTER,
)
@triton.jit
def tma_stream_k(
    a_ptr,
    b_ptr,
    c_ptr,
    parts_ptr,
    M,
    N,
    K,
    UNITS,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """`stream_k` with tensor descriptors."""
    a = tensor(a_ptr, M, K, A_BY_ROW, BLOCK_M, BLOCK_K)
    b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, BLOCK_N)
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N // 2])
    parts = tl.make_tensor_descriptor(
        parts_ptr, [2 * UNITS * BLOCK_M, BLOCK_N], [BLOCK_N, 1], [BLOCK_M, BLOCK_N // 2]
    )
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for turn in range(0, turns_of(rows * columns, steps)):
        tile, first, last = work_of(turn, rows * columns, steps)
        row, column = place_of(tile, rows, columns, GROUP_M)
        m, n = row * BLOCK_M, column * BLOCK_N
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(first, last):
            k = step * BLOCK_K
            sums = tl.dot(tile_at(a, m, k, A_BY_ROW), tile_at(b, k, n, B_BY_ROW), sums)
        left, right = both_halves(sums, BLOCK_N)
        if last - first == steps:
            c.store([m, n], left.to(c_ptr.dtype.element_ty))
            c.store([m, n + BLOCK_N // 2], right.to(c_ptr.dtype.element_ty))
        else:
            slot = 2 * tl.program_id(0) + tl.where(first == 0, 1, 0)
            parts.store([slot * BLOCK_M, 0], left)
            parts.store([slot * BLOCK_M, BLOCK_N // 2], right)
