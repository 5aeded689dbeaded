"""Matrix products in Triton by Hopper's tensor memory accelerator, which loads and stores whole tiles.

    tma           programs stay on their compute unit and take further tiles
    tma_uneven    the same with tiles whose width is the sum of two powers of 2, such as 128 + 32: more sizes
                  of C fill the device
    tma_swapped   computes the transpose, for few rows: matrix instructions have at least 64 rows
    tma_split_k   the depth is split over SPLIT_K programs, whose fp32 sums a second launch adds up

Each program makes its tensor descriptors itself, in scratch memory.
"""

import triton
import triton.language as tl
from gemm import ADD_PARTS, operands_and_order, parts_fit, place_of, store, tiles_of

from tile_oracle.triton import GemmView, cdiv, gemm, minimum


@triton.jit
def tensor(ptr, height, width, BY_ROW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The descriptor of an operand's tiles: of `height` rows of `width` elements, by rows or by columns."""
    if BY_ROW:
        return tl.make_tensor_descriptor(ptr, [height, width], [width, 1], [ROWS, COLUMNS])
    else:
        return tl.make_tensor_descriptor(ptr, [width, height], [height, 1], [COLUMNS, ROWS])


@triton.jit
def tile_at(operand, row, column, BY_ROW: tl.constexpr):
    """An operand's tile from this row and column on."""
    if BY_ROW:
        return operand.load([row, column])
    else:
        return operand.load([column, row]).T


@triton.jit
def both_halves(sums, WIDTH: tl.constexpr):
    """The left and the right half of a tile."""
    halves = tl.reshape(sums, (sums.shape[0], 2, WIDTH // 2))
    return tl.split(tl.permute(halves, (0, 2, 1)))


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
PERSISTENT = (
    *((128, 256, 64, 8, 3), (64, 128, 128, 4, 4), (256, 128, 64, 8, 3), (128, 128, 64, 4, 4)),
    *((128, 128, 64, 8, 4), (128, 128, 128, 8, 3), (64, 256, 64, 4, 4)),
)
FLATTENED = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (64, 256, 64, 4, 4))
# The same with specialized warps: of two groups, each does half of the rows, and another one loads.
SPECIALIZED = ((128, 256, 64, 4, 4), (128, 128, 64, 4, 5), (128, 128, 128, 4, 3), (128, 64, 128, 4, 4))
# Two or more programs at once on a compute unit.
SMALL = (
    (64, 128, 64, 4, 3),
    (128, 64, 64, 4, 4),
    (64, 64, 64, 4, 5),
    (64, 64, 128, 4, 3),
    (64, 32, 128, 4, 4),
)
# BLOCK_M, BLOCK_N, MORE_N, BLOCK_K, num_warps, num_stages, RESIDENT
UNEVEN = (
    *((128, 128, 64, 64, 8, 4, 1), (128, 128, 32, 64, 8, 4, 1), (128, 64, 32, 64, 4, 4, 1)),
    *((128, 64, 16, 64, 8, 5, 1), (64, 128, 64, 64, 4, 5, 1), (64, 128, 32, 64, 4, 3, 2)),
    *((64, 128, 16, 64, 4, 3, 2), (64, 64, 32, 64, 4, 4, 2), (64, 64, 16, 64, 4, 4, 2)),
    *((256, 64, 32, 64, 8, 3, 1),),
)
# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
SWAPPED = (
    (16, 64, 128, 4, 5),
    (16, 128, 128, 4, 3),
    (32, 64, 128, 4, 5),
    (32, 128, 128, 4, 4),
    (64, 64, 128, 4, 4),
)
# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, SPLIT_K, by the transpose
SPLIT = (
    *((128, 128, 64, 4, 4, 2), (128, 128, 64, 4, 4, 3), (64, 128, 64, 4, 4, 2), (64, 128, 64, 4, 4, 4)),
    *((64, 64, 128, 4, 4, 8),),
)
SPLIT_SWAPPED = (
    (16, 64, 128, 4, 5, 2),
    (16, 64, 128, 4, 5, 4),
    (16, 64, 128, 4, 5, 8),
    (32, 64, 128, 4, 4, 4),
)
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")


def _persistent(p: GemmView):
    for group, more in (
        (PERSISTENT, {}),
        (FLATTENED, {"FLATTEN": True}),
        (SPECIALIZED, {"SPECIALIZE": True, "HALVES": True}),
        (SMALL, {"RESIDENT": 2}),
    ):
        for values in group:
            usual = {"FLATTEN": False, "SPECIALIZE": False, "HALVES": False, "RESIDENT": 1}
            yield dict(zip(NAMES, values, strict=True)) | {"GROUP_M": 8} | usual | more


def _uneven(p: GemmView):
    names = ("BLOCK_M", "BLOCK_N", "MORE_N", *NAMES[2:], "RESIDENT")
    return [dict(zip(names, values, strict=True)) | {"GROUP_M": 8} for values in UNEVEN]


def _split(p: GemmView):
    for group, swapped in ((SPLIT, False), (SPLIT_SWAPPED, True)):
        for values in group:
            names = (*NAMES, "SPLIT_K")
            yield dict(zip(names, values, strict=True)) | {"GROUP_M": 8, "SWAPPED": swapped}


def rows_of_16_bytes(p: GemmView, meta):
    """What tensor descriptors demand of the distance between rows."""
    for extent in p.contiguous():
        yield (
            getattr(p, extent) % 8 == 0,
            f"rows of {extent} elements do not begin at multiples of 16 bytes",
        )
    yield specializes(meta)


def specializes(meta):
    """Whether this Triton compiles a configuration with specialized warps: in 3.6 its pass for them fails."""
    release = tuple(map(int, triton.__version__.split(".")[:2]))
    return (
        release >= (3, 7) or not meta.get("SPECIALIZE"),
        f"Triton {triton.__version__} does not compile it with specialized warps: 3.7 does",
    )


def _few(p: GemmView, meta):
    yield from rows_of_16_bytes(p, meta)
    yield (4 * meta["BLOCK_M"] >= p.M, "A has more than four tiles of rows")


def _deep(p: GemmView, meta):
    yield from rows_of_16_bytes(p, meta)
    if meta["SWAPPED"]:
        yield (4 * meta["BLOCK_M"] >= p.M, "A has more than four tiles of rows")
    yield from parts_fit(meta)


# ---- the kernels ---------------------------------------------------------------------------------


@gemm(
    grid=lambda meta: (minimum(tiles_of(meta), meta["UNITS"] * meta["RESIDENT"]),),
    configs=lambda p: list(_persistent(p)),
    arguments=lambda p: operands_and_order(p) | {"UNITS": p.compute_units},
    constraints=rows_of_16_bytes,
    aligned=(),
    archs=("sm_90",),
)
@triton.jit
def tma(
    a_ptr,
    b_ptr,
    c_ptr,
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
    FLATTEN: tl.constexpr,
    SPECIALIZE: tl.constexpr,
    HALVES: tl.constexpr,
    RESIDENT: tl.constexpr,
):
    """At most RESIDENT programs a compute unit.

    FLATTEN: the loads of the next tile begin before this one ends. SPECIALIZE: some warps only load.
    HALVES: stores a tile in two halves, which takes less LDS.
    """
    a = tensor(a_ptr, M, K, A_BY_ROW, BLOCK_M, BLOCK_K)
    b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, BLOCK_N)
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N // (2 if HALVES else 1)])
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(
        tl.program_id(0), rows * columns, tl.num_programs(0), flatten=FLATTEN, warp_specialize=SPECIALIZE
    ):
        row, column = place_of(tile, rows, columns, GROUP_M)
        m, n = row * BLOCK_M, column * BLOCK_N
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            sums = tl.dot(tile_at(a, m, k, A_BY_ROW), tile_at(b, k, n, B_BY_ROW), sums)
        if HALVES:
            left, right = both_halves(sums, BLOCK_N)
            c.store([m, n], left.to(c_ptr.dtype.element_ty))
            c.store([m, n + BLOCK_N // 2], right.to(c_ptr.dtype.element_ty))
        else:
            c.store([m, n], sums.to(c_ptr.dtype.element_ty))


@gemm(
    grid=lambda meta: (
        minimum(
            cdiv(meta["M"], meta["BLOCK_M"]) * cdiv(meta["N"], meta["BLOCK_N"] + meta["MORE_N"]),
            meta["UNITS"] * meta["RESIDENT"],
        ),
    ),
    configs=_uneven,
    arguments=lambda p: operands_and_order(p) | {"UNITS": p.compute_units},
    constraints=rows_of_16_bytes,
    aligned=(),
    archs=("sm_90",),
)
@triton.jit
def tma_uneven(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    UNITS,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MORE_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    RESIDENT: tl.constexpr,
):
    """Tiles of BLOCK_N + MORE_N columns, as two products with the same rows of A."""
    a = tensor(a_ptr, M, K, A_BY_ROW, BLOCK_M, BLOCK_K)
    b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, BLOCK_N)
    more_b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, MORE_N)
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    more_c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, MORE_N])
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE_N)
    for tile in range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        row, column = place_of(tile, rows, columns, GROUP_M)
        m, n = row * BLOCK_M, column * (BLOCK_N + MORE_N)
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        more = tl.zeros((BLOCK_M, MORE_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x = tile_at(a, m, k, A_BY_ROW)
            sums = tl.dot(x, tile_at(b, k, n, B_BY_ROW), sums)
            more = tl.dot(x, tile_at(more_b, k, n + BLOCK_N, B_BY_ROW), more)
        c.store([m, n], sums.to(c_ptr.dtype.element_ty))
        more_c.store([m, n + BLOCK_N], more.to(c_ptr.dtype.element_ty))


@gemm(
    grid=lambda meta: (tiles_of(meta),),
    configs=[dict(zip(NAMES, values, strict=True)) for values in SWAPPED],
    arguments=operands_and_order,
    constraints=_few,
    aligned=(),
    archs=("sm_90",),
)
@triton.jit
def tma_swapped(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One program a tile of C, as a product of B's and A's transposes."""
    a = tensor(a_ptr, M, K, A_BY_ROW, BLOCK_M, BLOCK_K)
    b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, BLOCK_N)
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    rows = tl.cdiv(M, BLOCK_M)
    m, n = tl.program_id(0) % rows * BLOCK_M, tl.program_id(0) // rows * BLOCK_N
    sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        sums = tl.dot(tile_at(b, k, n, B_BY_ROW).T, tile_at(a, m, k, A_BY_ROW).T, sums)
    c.store([m, n], sums.to(c_ptr.dtype.element_ty).T)


@gemm(
    grid=lambda meta: (tiles_of(meta), meta["SPLIT_K"]),
    configs=lambda p: list(_split(p)),
    arguments=lambda p: operands_and_order(p) | {"parts_ptr": p.workspace("fp32")},
    constraints=_deep,
    aligned=(),
    archs=("sm_90",),
    workspace_bytes=lambda p, meta: 4 * p.M * p.N * meta["SPLIT_K"],
    after=ADD_PARTS,
)
@triton.jit
def tma_split_k(
    a_ptr,
    b_ptr,
    parts_ptr,
    M,
    N,
    K,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SWAPPED: tl.constexpr,
):
    """One program a tile and part of the depth. Parts are whole steps of BLOCK_K."""
    a = tensor(a_ptr, M, K, A_BY_ROW, BLOCK_M, BLOCK_K)
    b = tensor(b_ptr, K, N, B_BY_ROW, BLOCK_K, BLOCK_N)
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    m, n = row * BLOCK_M, column * BLOCK_N
    part = tl.program_id(1)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    parts = parts_ptr + part.to(tl.int64) * M * N
    if SWAPPED:
        sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for k in range(part * share, min(K, part * share + share), BLOCK_K):
            sums = tl.dot(tile_at(b, k, n, B_BY_ROW).T, tile_at(a, m, k, A_BY_ROW).T, sums)
        store(parts, sums.T, row, column, M, N, N, BLOCK_M, BLOCK_N)
    else:
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(part * share, min(K, part * share + share), BLOCK_K):
            sums = tl.dot(tile_at(a, m, k, A_BY_ROW), tile_at(b, k, n, B_BY_ROW), sums)
        store(parts, sums, row, column, M, N, N, BLOCK_M, BLOCK_N)
