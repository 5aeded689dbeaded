"""Matrix products in Gluon, Triton's lower level, with specialized warps on Hopper.

One warp loads, by the tensor memory accelerator, and one or two groups of four warps multiply. They meet at
barriers in LDS, one pair a stage: `full` when a stage's tiles are there, `empty` when all groups are done
with them. No barrier is for all warps, so that one group multiplies while the other one waits or stores.

A tile has BLOCK_N + MORE_N columns, in pieces that are powers of 2, as in gemm_pieces.py. One descriptor is
enough for all pieces of B: it is of BOX rows, and a piece is loaded as several boxes.
"""

from gemm import ADD_PARTS, parts_fit
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from tile_oracle.triton import GemmView, cdiv, gemm, minimum

async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
"""Loads a box by the tensor memory accelerator. Before Triton 3.8 it has another name."""


@gluon.jit
def place_of(tile, rows, columns, GROUP_M: gl.constexpr):
    """(row, column) of a tile in the grouped order."""
    group = tile // (GROUP_M * columns)
    first = group * GROUP_M
    height = min(rows - first, GROUP_M)
    within = tile % (GROUP_M * columns)
    return first + within % height, within // height


@gluon.jit
def part_of(part, K, BLOCK_K: gl.constexpr, SPLIT_K: gl.constexpr):
    """Where a part of the depth begins and ends. Parts are whole steps of BLOCK_K; the last may be empty."""
    share = gl.cdiv(gl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    begin = min(K, part * share)
    return begin, min(K, begin + share)


@gluon.jit
def load_rows(source, row, k, barrier, buffer, BOX: gl.constexpr):
    """Loads rows of an operand from this row on, in boxes of BOX rows."""
    for box in gl.static_range(buffer.shape[0] // BOX):
        async_load(source, [row + box * BOX, k], barrier, buffer.slice(box * BOX, BOX))


@gluon.jit
def load_tiles(
    a, b, a_rows, wide, middle, last, full, empty, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, MIDDLE_N: gl.constexpr, LAST_N: gl.constexpr,
    BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr, SPLIT_K: gl.constexpr,
    BOX: gl.constexpr,
):  # fmt: skip
    """The warp that loads."""
    WIDTH: gl.constexpr = BLOCK_N + MIDDLE_N + LAST_N
    rows, columns = gl.cdiv(M, BLOCK_M), gl.cdiv(N, WIDTH)
    step = 0
    for turn in range(gl.program_id(0), rows * columns * SPLIT_K, gl.num_programs(0)):
        row, column = place_of(turn % (rows * columns), rows, columns, GROUP_M)
        m, n = row * BLOCK_M, column * WIDTH
        begin, end = part_of(turn // (rows * columns), K, BLOCK_K, SPLIT_K)
        for k in range(begin, end, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            barrier = full.index(stage)
            mbarrier.expect(barrier, (BLOCK_M + WIDTH) * BLOCK_K * 2)
            load_rows(a, m, k, barrier, a_rows.index(stage), 64)
            load_rows(b, n, k, barrier, wide.index(stage), BOX)
            if MIDDLE_N > 0:
                load_rows(b, n + BLOCK_N, k, barrier, middle.index(stage), BOX)
            if LAST_N > 0:
                load_rows(b, n + BLOCK_N + MIDDLE_N, k, barrier, last.index(stage), BOX)
            step += 1


@gluon.jit
def store_piece(c_ptr, sums, m, n, M, N):
    """Writes a group's rows of a piece."""
    ROWS: gl.constexpr = sums.shape[0]
    WIDTH: gl.constexpr = sums.shape[1]
    ACROSS: gl.constexpr = WIDTH // 8 if WIDTH < 128 else 16
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // ACROSS, ACROSS], [4, 1], [1, 0])
    values = gl.convert_layout(sums.to(c_ptr.dtype.element_ty), layout)
    i = m + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    j = n + gl.arange(0, WIDTH, gl.SliceLayout(0, layout))
    at = i.to(gl.int64)[:, None] * N + j[None, :]
    gl.store(c_ptr + at, values, mask=(i < M)[:, None] & (j < N)[None, :])


@gluon.jit
def multiply(
    c_ptr, a_rows, wide, middle, last, full, empty, M, N, K, GROUP: gl.constexpr, GROUPS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, MIDDLE_N: gl.constexpr, LAST_N: gl.constexpr,
    BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr, SPLIT_K: gl.constexpr,
    REGISTERS: gl.constexpr,
):  # fmt: skip
    """A group of warps that multiplies: its share of the tile's rows.

    REGISTERS: the rows of A go through registers, so that LDS is read once for all pieces. Then the group
    waits for each step; else only for the one before.
    """
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    WIDTH: gl.constexpr = BLOCK_N + MIDDLE_N + LAST_N
    IN_FLIGHT: gl.constexpr = 0 if REGISTERS else 1 + (MIDDLE_N > 0) + (LAST_N > 0)
    # Without such a piece, 8 columns that nothing is added to, and that are not stored.
    MIDDLE_WIDTH: gl.constexpr = MIDDLE_N if MIDDLE_N > 0 else 8
    LAST_WIDTH: gl.constexpr = LAST_N if LAST_N > 0 else 8
    of_wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    of_middle: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, MIDDLE_WIDTH, 16])
    of_last: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, LAST_WIDTH, 16])
    rows, columns = gl.cdiv(M, BLOCK_M), gl.cdiv(N, WIDTH)
    step = 0
    for turn in range(gl.program_id(0), rows * columns * SPLIT_K, gl.num_programs(0)):
        row, column = place_of(turn % (rows * columns), rows, columns, GROUP_M)
        m, n = row * BLOCK_M + GROUP * ROWS, column * WIDTH
        part = turn // (rows * columns)
        begin, end = part_of(part, K, BLOCK_K, SPLIT_K)
        sums = gl.zeros([ROWS, BLOCK_N], gl.float32, of_wide)
        middles = gl.zeros([ROWS, MIDDLE_WIDTH], gl.float32, of_middle)
        lasts = gl.zeros([ROWS, LAST_WIDTH], gl.float32, of_last)
        for k in range(begin, end, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), (step // STAGES) & 1)
            x = a_rows.index(stage).slice(GROUP * ROWS, ROWS)
            x_last = x
            x_middle = x
            if REGISTERS:
                x = x.load(gl.DotOperandLayout(0, of_wide, 2))
                x_last = gl.convert_layout(x, gl.DotOperandLayout(0, of_last, 2), assert_trivial=True)
                x_middle = gl.convert_layout(x, gl.DotOperandLayout(0, of_middle, 2), assert_trivial=True)
            if LAST_N > 0:
                lasts = warpgroup_mma(x_last, last.index(stage).permute((1, 0)), lasts, is_async=True)
            if MIDDLE_N > 0:
                middles = warpgroup_mma(x_middle, middle.index(stage).permute((1, 0)), middles, is_async=True)
            sums = warpgroup_mma(x, wide.index(stage).permute((1, 0)), sums, is_async=True)
            if MIDDLE_N > 0:
                sums, middles, lasts = warpgroup_mma_wait(IN_FLIGHT, deps=(sums, middles, lasts))
            elif LAST_N > 0:
                sums, lasts = warpgroup_mma_wait(IN_FLIGHT, deps=(sums, lasts))
            else:
                sums = warpgroup_mma_wait(IN_FLIGHT, deps=(sums,))
            if REGISTERS:
                mbarrier.arrive(empty.index(stage))
            else:
                mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), pred=k > begin)
            step += 1
        if not REGISTERS:
            if MIDDLE_N > 0:
                sums, middles, lasts = warpgroup_mma_wait(0, deps=(sums, middles, lasts))
            elif LAST_N > 0:
                sums, lasts = warpgroup_mma_wait(0, deps=(sums, lasts))
            else:
                sums = warpgroup_mma_wait(0, deps=(sums,))
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), pred=end > begin)
        c = c_ptr + part.to(gl.int64) * M * N
        store_piece(c, sums, m, n, M, N)
        if MIDDLE_N > 0:
            store_piece(c, middles, m, n + BLOCK_N, M, N)
        if LAST_N > 0:
            store_piece(c, lasts, m, n + BLOCK_N + MIDDLE_N, M, N)


@gluon.jit
def specialized(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, MORE_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, SPLIT_K: gl.constexpr, REGISTERS: gl.constexpr,
    GROUPS: gl.constexpr,
):  # fmt: skip
    """Makes the descriptors, the buffers and the barriers, and starts all warps."""
    LAST_N: gl.constexpr = MORE_N & -MORE_N
    MIDDLE_N: gl.constexpr = MORE_N - LAST_N
    NARROWEST: gl.constexpr = LAST_N if LAST_N > 0 else BLOCK_N
    BOX: gl.constexpr = NARROWEST if NARROWEST < 64 else 64
    dtype: gl.constexpr = a_ptr.dtype.element_ty
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], dtype)
    a = tma.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [64, BLOCK_K], layout)
    b = tma.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BOX, BLOCK_K], layout)
    a_rows = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_M, BLOCK_K], layout)
    wide = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, BLOCK_K], layout)
    middle = wide
    last = wide
    if MIDDLE_N > 0:
        middle = gl.allocate_shared_memory(dtype, [STAGES, MIDDLE_N, BLOCK_K], layout)
    if LAST_N > 0:
        last = gl.allocate_shared_memory(dtype, [STAGES, LAST_N, BLOCK_K], layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
    LOADER: gl.constexpr = 40 if BOX > 8 else 56
    OTHERS: gl.constexpr = 232 if BOX > 8 else 224
    # Numbers stay constants only where these tuples stand in the call.
    # fmt: off
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (
                    multiply,
                    (
                        c_ptr, a_rows, wide, middle, last, full, empty, M, N, K, 0, 2, BLOCK_M, BLOCK_N,
                        MIDDLE_N, LAST_N, BLOCK_K, GROUP_M, STAGES, SPLIT_K, REGISTERS,
                    ),
                ),
                (
                    multiply,
                    (
                        c_ptr, a_rows, wide, middle, last, full, empty, M, N, K, 1, 2, BLOCK_M, BLOCK_N,
                        MIDDLE_N, LAST_N, BLOCK_K, GROUP_M, STAGES, SPLIT_K, REGISTERS,
                    ),
                ),
                (
                    load_tiles,
                    (
                        a, b, a_rows, wide, middle, last, full, empty, M, N, K, BLOCK_M, BLOCK_N,
                        MIDDLE_N, LAST_N, BLOCK_K, GROUP_M, STAGES, SPLIT_K, BOX,
                    ),
                ),
            ],
            [4, 1],
            [OTHERS, LOADER],
        )
    else:
        gl.warp_specialize(
            [
                (
                    multiply,
                    (
                        c_ptr, a_rows, wide, middle, last, full, empty, M, N, K, 0, 1, BLOCK_M, BLOCK_N,
                        MIDDLE_N, LAST_N, BLOCK_K, GROUP_M, STAGES, SPLIT_K, REGISTERS,
                    ),
                ),
                (
                    load_tiles,
                    (
                        a, b, a_rows, wide, middle, last, full, empty, M, N, K, BLOCK_M, BLOCK_N,
                        MIDDLE_N, LAST_N, BLOCK_K, GROUP_M, STAGES, SPLIT_K, BOX,
                    ),
                ),
            ],
            [1],
            [LOADER],
        )
    # fmt: on


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, MORE_N, BLOCK_K, num_stages, REGISTERS, GROUPS
WARPS = (
    *((128, 256, 0, 64, 4, False, 2), (128, 256, 16, 64, 3, False, 2), (128, 256, 32, 64, 3, False, 2)),
    *((128, 256, 64, 64, 3, False, 2), (256, 128, 0, 64, 4, False, 2), (256, 128, 32, 64, 3, True, 2)),
    *((128, 128, 0, 64, 6, False, 2), (128, 128, 16, 64, 5, False, 2), (128, 128, 16, 64, 5, True, 2)),
    *((128, 128, 32, 64, 5, True, 2), (128, 128, 40, 64, 4, True, 2), (128, 128, 48, 64, 4, True, 2)),
    *((128, 128, 64, 64, 4, False, 2), (128, 128, 64, 64, 4, True, 2), (128, 64, 0, 64, 8, False, 2)),
    *((128, 64, 48, 64, 6, True, 2), (64, 128, 0, 64, 8, False, 1), (64, 64, 0, 64, 12, False, 1)),
    *((64, 64, 16, 64, 11, False, 1), (64, 64, 48, 64, 9, False, 1)),
)
# The same with SPLIT_K
SPLIT = ((64, 128, 0, 64, 8, False, 1, 2), (64, 128, 0, 64, 8, False, 1, 3))
NAMES = ("BLOCK_M", "BLOCK_N", "MORE_N", "BLOCK_K", "num_stages", "REGISTERS", "GROUPS")


def _configs(p: GemmView):
    return [dict(zip(NAMES, values, strict=True)) | {"GROUP_M": 8, "num_warps": 4} for values in WARPS]


def _split(p: GemmView):
    names = (*NAMES, "SPLIT_K")
    return [dict(zip(names, values, strict=True)) | {"GROUP_M": 8, "num_warps": 4} for values in SPLIT]


def _tiles(meta):
    return cdiv(meta["M"], meta["BLOCK_M"]) * cdiv(meta["N"], meta["BLOCK_N"] + meta["MORE_N"])


# ---- the kernels ---------------------------------------------------------------------------------


@gemm(
    grid=lambda meta: (minimum(_tiles(meta), meta["UNITS"]),),
    layouts=("rcr",),
    configs=_configs,
    arguments=lambda p: p.usual_arguments() | {"UNITS": p.compute_units},
    general=False,
    archs=("sm_90",),
)
@gluon.jit
def tma_warps(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    UNITS,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    MORE_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    num_stages: gl.constexpr,
    REGISTERS: gl.constexpr,
    GROUPS: gl.constexpr,
):
    """One program a compute unit, which takes further tiles."""
    specialized(
        a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M, BLOCK_N, MORE_N, BLOCK_K, GROUP_M, num_stages, 1,
        REGISTERS, GROUPS,
    )  # fmt: skip


@gemm(
    grid=lambda meta: (minimum(_tiles(meta) * meta["SPLIT_K"], meta["UNITS"]),),
    layouts=("rcr",),
    configs=_split,
    arguments=lambda p: p.usual_arguments() | {"UNITS": p.compute_units, "parts_ptr": p.workspace("fp32")},
    constraints=lambda p, meta: parts_fit(meta),
    general=False,
    archs=("sm_90",),
    workspace_bytes=lambda p, meta: 4 * p.M * p.N * meta["SPLIT_K"],
    after=ADD_PARTS,
)
@gluon.jit
def tma_warps_split_k(
    a_ptr,
    b_ptr,
    parts_ptr,
    M,
    N,
    K,
    UNITS,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    MORE_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    num_stages: gl.constexpr,
    REGISTERS: gl.constexpr,
    GROUPS: gl.constexpr,
    SPLIT_K: gl.constexpr,
):
    """The depth is split over SPLIT_K turns, whose fp32 sums a second launch adds up."""
    specialized(
        a_ptr, b_ptr, parts_ptr, M, N, K, BLOCK_M, BLOCK_N, MORE_N, BLOCK_K, GROUP_M, num_stages, SPLIT_K,
        REGISTERS, GROUPS,
    )  # fmt: skip
