"""Products of fp8 matrices with scales in Gluon, with specialized warps on Hopper.

One warp loads, by the tensor memory accelerator, and groups of four warps multiply, each 64 rows of the tile:
while one adds its registers to its fp32 sums, the others multiply. They meet at barriers as in gemm_warps.py.
A tile has at most 128 columns, so that it lies in one block of scales.
"""

from gemm import ADD_PARTS, parts_fit, tiles_of
from gemm_warps import async_load, load_rows, part_of, place_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from tile_oracle.triton import minimum, scaled_gemm

ROWS = gl.constexpr(64)
"""Of a group's share of a tile, and of a box."""
BLOCK = gl.constexpr(128)


@gluon.jit
def load_steps(
    a, b, x, y, full, empty, M, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, SPLIT_K: gl.constexpr,
):  # fmt: skip
    """The warp that loads."""
    GROUPS: gl.constexpr = BLOCK_M // ROWS
    rows, columns = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    step = 0
    for turn in range(gl.program_id(0), rows * columns * SPLIT_K, gl.num_programs(0)):
        row, column = place_of(turn % (rows * columns), rows, columns, GROUP_M)
        begin, end = part_of(turn // (rows * columns), K, BLOCK, SPLIT_K)
        for k in range(begin, end, BLOCK):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            barrier = full.index(stage)
            mbarrier.expect(barrier, (BLOCK_M + BLOCK_N) * BLOCK)
            for group in gl.static_range(GROUPS):
                at = [row * BLOCK_M + group * ROWS, k]
                async_load(a, at, barrier, x.index(stage * GROUPS + group))
            load_rows(b, column * BLOCK_N, k, barrier, y.index(stage), ROWS)
            step += 1


@gluon.jit
def multiply(
    scale_a_ptr, scale_b_ptr, c_ptr, x, y, full, empty, M, N, K, GROUP: gl.constexpr, SCALE: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    SPLIT_K: gl.constexpr,
):  # fmt: skip
    """A group of warps that multiplies: 64 rows of the tile."""
    GROUPS: gl.constexpr = BLOCK_M // ROWS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    rows, columns = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    step = 0
    for turn in range(gl.program_id(0), rows * columns * SPLIT_K, gl.num_programs(0)):
        row, column = place_of(turn % (rows * columns), rows, columns, GROUP_M)
        split = turn // (rows * columns)
        begin, end = part_of(split, K, BLOCK, SPLIT_K)
        first, n = row * BLOCK_M + GROUP * ROWS, column * BLOCK_N
        i = first + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        j = n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
        sums = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        for k in range(begin, end, BLOCK):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), (step // STAGES) & 1)
            part = warpgroup_mma(
                x.index(stage * GROUPS + GROUP), y.index(stage).permute((1, 0)),
                gl.zeros([ROWS, BLOCK_N], gl.float32, layout), use_acc=False, is_async=True,
            )  # fmt: skip
            part = warpgroup_mma_wait(0, deps=(part,))
            mbarrier.arrive(empty.index(stage))
            if SCALE == "block":
                block = k // BLOCK
                of_rows = gl.load(scale_a_ptr + block.to(gl.int64) * M + i, mask=i < M, other=0.0)
                of_columns = gl.load(scale_b_ptr + n // BLOCK * gl.cdiv(K, BLOCK) + block)
                part *= (of_rows * of_columns)[:, None]
            sums += part
            step += 1
        if SCALE == "tensor":
            sums *= gl.load(scale_a_ptr) * gl.load(scale_b_ptr)
        if SCALE == "row":
            sums *= gl.load(scale_a_ptr + i, mask=i < M, other=0.0)[:, None]
            sums *= gl.load(scale_b_ptr + j, mask=j < N, other=0.0)[None, :]
        ACROSS: gl.constexpr = BLOCK_N // 8 if BLOCK_N < 128 else 16
        stored: gl.constexpr = gl.BlockedLayout([1, 8], [32 // ACROSS, ACROSS], [4, 1], [1, 0])
        values = gl.convert_layout(sums.to(c_ptr.dtype.element_ty), stored)
        i = first + gl.arange(0, ROWS, gl.SliceLayout(1, stored))
        j = n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, stored))
        at = split.to(gl.int64) * M * N + i.to(gl.int64)[:, None] * N + j[None, :]
        gl.store(c_ptr + at, values, mask=(i < M)[:, None] & (j < N)[None, :])


@gluon.jit
def specialized(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K,
    SCALE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr,
    STAGES: gl.constexpr, SPLIT_K: gl.constexpr,
):  # fmt: skip
    """Makes the descriptors, the buffers and the barriers, and starts all warps."""
    GROUPS: gl.constexpr = BLOCK_M // ROWS
    of_a: gl.constexpr = a_ptr.dtype.element_ty
    of_b: gl.constexpr = b_ptr.dtype.element_ty
    layout_a: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK], of_a)
    layout_b: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK], of_b)
    a = tma.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [ROWS, BLOCK], layout_a)
    b = tma.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [ROWS, BLOCK], layout_b)
    x = gl.allocate_shared_memory(of_a, [STAGES * GROUPS, ROWS, BLOCK], layout_a)
    y = gl.allocate_shared_memory(of_b, [STAGES, BLOCK_N, BLOCK], layout_b)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=GROUPS)
    # Numbers stay constants only where these tuples stand in the call.
    # fmt: off
    if GROUPS == 3:
        gl.warp_specialize(
            [
                (multiply, (
                    scale_a_ptr, scale_b_ptr, c_ptr, x, y, full, empty, M, N, K, 0, SCALE, BLOCK_M, BLOCK_N,
                    GROUP_M, STAGES, SPLIT_K,
                )),
                (multiply, (
                    scale_a_ptr, scale_b_ptr, c_ptr, x, y, full, empty, M, N, K, 1, SCALE, BLOCK_M, BLOCK_N,
                    GROUP_M, STAGES, SPLIT_K,
                )),
                (multiply, (
                    scale_a_ptr, scale_b_ptr, c_ptr, x, y, full, empty, M, N, K, 2, SCALE, BLOCK_M, BLOCK_N,
                    GROUP_M, STAGES, SPLIT_K,
                )),
                (load_steps, (
                    a, b, x, y, full, empty, M, N, K, BLOCK_M, BLOCK_N, GROUP_M, STAGES, SPLIT_K,
                )),
            ],
            [4, 4, 1], [152, 152, 40],
        )
    elif GROUPS == 2:
        gl.warp_specialize(
            [
                (multiply, (
                    scale_a_ptr, scale_b_ptr, c_ptr, x, y, full, empty, M, N, K, 0, SCALE, BLOCK_M, BLOCK_N,
                    GROUP_M, STAGES, SPLIT_K,
                )),
                (multiply, (
                    scale_a_ptr, scale_b_ptr, c_ptr, x, y, full, empty, M, N, K, 1, SCALE, BLOCK_M, BLOCK_N,
                    GROUP_M, STAGES, SPLIT_K,
                )),
                (load_steps, (
                    a, b, x, y, full, empty, M, N, K, BLOCK_M, BLOCK_N, GROUP_M, STAGES, SPLIT_K,
                )),
            ],
            [4, 1], [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (multiply, (
                    scale_a_ptr, scale_b_ptr, c_ptr, x, y, full, empty, M, N, K, 0, SCALE, BLOCK_M, BLOCK_N,
                    GROUP_M, STAGES, SPLIT_K,
                )),
                (load_steps, (
                    a, b, x, y, full, empty, M, N, K, BLOCK_M, BLOCK_N, GROUP_M, STAGES, SPLIT_K,
                )),
            ],
            [1], [40],
        )
    # fmt: on


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, num_stages, GROUP_M, RESIDENT
WARPS = (
    (128, 128, 6, 8, 1),
    (128, 128, 6, 16, 1),
    (192, 128, 5, 8, 1),
    (192, 128, 5, 16, 1),
    (128, 64, 8, 8, 1),
)
# The same with SPLIT_K
SPLIT = ((128, 128, 6, 8, 1, 2), (128, 128, 6, 8, 1, 4), (64, 128, 4, 8, 2, 4))
NAMES = ("BLOCK_M", "BLOCK_N", "num_stages", "GROUP_M", "RESIDENT")


def _configs(values, *more):
    names = (*NAMES, *more)
    return [dict(zip(names, one, strict=True)) | {"BLOCK_K": 128, "num_warps": 4} for one in values]


# ---- the kernels ---------------------------------------------------------------------------------


@scaled_gemm(
    grid=lambda meta: (minimum(tiles_of(meta), meta["UNITS"] * meta["RESIDENT"]),),
    configs=lambda p: _configs(WARPS),
    arguments=lambda p: p.usual_arguments() | {"UNITS": p.compute_units},
    general=False,
    archs=("sm_90",),
)
@gluon.jit
def scaled_warps(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K, UNITS,
    SCALE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, num_stages: gl.constexpr, RESIDENT: gl.constexpr,
):  # fmt: skip
    """At most RESIDENT programs a compute unit, which take further tiles."""
    specialized(
        a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K, SCALE, BLOCK_M, BLOCK_N, GROUP_M, num_stages,
        1,
    )  # fmt: skip


@scaled_gemm(
    grid=lambda meta: (minimum(tiles_of(meta) * meta["SPLIT_K"], meta["UNITS"] * meta["RESIDENT"]),),
    configs=lambda p: _configs(SPLIT, "SPLIT_K"),
    arguments=lambda p: p.usual_arguments() | {"UNITS": p.compute_units, "parts_ptr": p.workspace("fp32")},
    constraints=lambda p, meta: parts_fit(meta),
    general=False,
    archs=("sm_90",),
    workspace_bytes=lambda p, meta: 4 * p.M * p.N * meta["SPLIT_K"],
    after=ADD_PARTS,
)
@gluon.jit
def scaled_warps_split_k(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, parts_ptr, M, N, K, UNITS,
    SCALE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, num_stages: gl.constexpr, RESIDENT: gl.constexpr,
    SPLIT_K: gl.constexpr,
):  # fmt: skip
    """The depth is split over SPLIT_K turns, whose fp32 sums a second launch adds up."""
    specialized(
        a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, parts_ptr, M, N, K, SCALE, BLOCK_M, BLOCK_N, GROUP_M,
        num_stages, SPLIT_K,
    )  # fmt: skip
