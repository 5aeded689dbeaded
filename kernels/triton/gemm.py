"""Matrix products in Triton: C = A B, accumulated in fp32.

    tiles        one program a tile of C
    persistent   programs stay on their compute unit and take further tiles
    split_k      the depth is split over SPLIT_K programs, whose fp32 sums a second launch adds up
    few_rows     up to ROWS rows of A, without matrix instructions

gemm_stream_k.py and gemm_tma.py have more. All but few_rows take tiles in groups of GROUP_M rows of tiles, so
that programs that run at once share operands in the cache. A tile's base is a 64-bit offset; offsets within
it are 32-bit.
"""

import triton
import triton.language as tl

from tile_oracle.triton import GemmView, ProblemView, cdiv, gemm, launch, minimum

AMD = ("gfx950", "gfx942", "gfx90a")
SUM_BLOCK = 1024


@triton.jit
def place_of(tile, rows, columns, GROUP_M: tl.constexpr):
    """(row, column) of a tile in the grouped order."""
    group = tile // (GROUP_M * columns)
    first = group * GROUP_M
    height = min(rows - first, GROUP_M)
    within = tile % (GROUP_M * columns)
    return first + within % height, within // height


@triton.jit
def row_offsets(row, M, BLOCK: tl.constexpr, CONTIGUOUS: tl.constexpr):
    """Offsets of a tile's rows from its first row.

    Where rows are not contiguous, rows beyond the matrix are read from its first rows: that needs no mask.
    """
    offsets = tl.arange(0, BLOCK)
    if not CONTIGUOUS:
        offsets = tl.where(row * BLOCK + offsets < M, offsets, 0)
    return offsets


@triton.jit
def product(
    a_ptr,
    b_ptr,
    row,
    column,
    depth_from,
    depth_to,
    M,
    N,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
):
    """The fp32 sum of one tile over depth_from to depth_to."""
    m = row_offsets(row, M, BLOCK_M, not A_BY_ROW)
    n = row_offsets(column, N, BLOCK_N, B_BY_ROW)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + row.to(tl.int64) * BLOCK_M * stride_am + depth_from.to(tl.int64) * stride_ak
    b = b_ptr + column.to(tl.int64) * BLOCK_N * stride_bn + depth_from.to(tl.int64) * stride_bk
    a_at = m[:, None] * stride_am + k[None, :] * stride_ak
    b_at = k[:, None] * stride_bk + n[None, :] * stride_bn
    m_there = row * BLOCK_M + m < M
    n_there = column * BLOCK_N + n < N
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for depth in range(depth_from, depth_to, BLOCK_K):
        k_there = k < depth_to - depth
        if A_BY_ROW:
            x = tl.load(a + a_at, mask=k_there[None, :], other=0.0)
        else:
            x = tl.load(a + a_at, mask=m_there[:, None] & k_there[None, :], other=0.0)
        if B_BY_ROW:
            y = tl.load(b + b_at, mask=k_there[:, None] & n_there[None, :], other=0.0)
        else:
            y = tl.load(b + b_at, mask=k_there[:, None], other=0.0)
        sums = tl.dot(x, y, sums)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    return sums


@triton.jit
def store(c_ptr, sums, row, column, M, N, stride_cm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Writes a tile of a matrix that lies by rows, in its own type."""
    m, n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    there = (row * BLOCK_M + m < M)[:, None] & (column * BLOCK_N + n < N)[None, :]
    c = c_ptr + row.to(tl.int64) * BLOCK_M * stride_cm + column.to(tl.int64) * BLOCK_N
    tl.store(c + m[:, None] * stride_cm + n[None, :], sums.to(c_ptr.dtype.element_ty), mask=there)


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
HOPPER = (
    *((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (128, 128, 64, 8, 4)),
    *((128, 128, 64, 4, 4), (128, 128, 128, 8, 3), (128, 64, 64, 4, 4), (64, 256, 64, 4, 4)),
    *((64, 128, 64, 4, 5), (64, 128, 128, 4, 3), (64, 64, 64, 4, 5), (64, 32, 128, 4, 4)),
    *((32, 128, 64, 4, 5), (32, 64, 128, 4, 4), (16, 128, 64, 4, 5), (16, 64, 128, 4, 5)),
    *((16, 32, 256, 4, 4), (128, 16, 128, 4, 4)),
)
HOPPER_PERSISTENT = ((128, 128, 64, 8, 4), (64, 128, 64, 4, 5))
HOPPER_SPLIT = ((128, 128, 64, 4, 4), (64, 128, 64, 4, 5), (64, 64, 128, 4, 4), (16, 64, 128, 4, 5))

# The first spills where A lies by columns.
CDNA = (
    *((256, 256, 64, 8, 2), (256, 128, 64, 8, 2), (128, 256, 64, 8, 2), (128, 128, 64, 8, 2)),
    *((128, 128, 64, 4, 2), (128, 128, 128, 8, 2), (128, 64, 64, 4, 2), (64, 128, 64, 4, 2)),
    *((64, 128, 128, 4, 2), (64, 64, 64, 4, 2), (64, 64, 128, 4, 2), (32, 128, 128, 4, 2)),
    *((32, 64, 128, 4, 2), (32, 32, 256, 4, 2), (16, 128, 128, 4, 2), (16, 64, 256, 4, 2)),
)
CDNA_PERSISTENT = ((256, 128, 64, 8, 2), (128, 128, 64, 4, 2), (128, 128, 64, 8, 2), (64, 128, 64, 4, 2))
CDNA_SPLIT = ((128, 128, 64, 4, 2), (64, 64, 128, 4, 2), (32, 64, 128, 4, 2), (16, 64, 256, 4, 2))
SPLITS = (4, 16)
OLDER_CDNA_LDS = 64 * 1024


def configurations(p: ProblemView, of_hopper, of_cdna, **more):
    """Configurations of an architecture. AMD's use 16-wide matrix instructions."""
    found = []
    for m, n, k, warps, stages in of_cdna if p.arch in AMD else of_hopper:
        if p.dtype == "fp8":
            k *= 2
        one = {
            "BLOCK_M": m,
            "BLOCK_N": n,
            "BLOCK_K": k,
            "GROUP_M": 8,
            "num_warps": warps,
            "num_stages": stages,
        }
        if p.arch in AMD:
            one |= {"matrix_instr_nonkdim": 16}
            if p.arch != "gfx950" and (m + n) * k * 2 > OLDER_CDNA_LDS:
                continue
        found.append(one | more)
    return found


def operands_and_order(p: GemmView):
    """The usual arguments, and which operands lie by rows."""
    return p.usual_arguments() | {"A_BY_ROW": p.layout[0] == "r", "B_BY_ROW": p.layout[1] == "r"}


def near(p: ProblemView, meta):
    """Offsets within a tile are 32-bit."""
    why = "a tile spans more than 2^30 elements"
    yield (meta["K"] * max(meta["BLOCK_M"], meta["BLOCK_N"]) < 2**30, why)
    yield (meta["M"] * meta["BLOCK_K"] < 2**30, why)
    yield (meta["N"] * max(meta["BLOCK_K"], meta["BLOCK_M"]) < 2**30, why)


def small(p: GemmView, meta):
    """Whether to compile for unaligned problems, too: large tiles would take long, and are slow there."""
    return meta["BLOCK_M"] * meta["BLOCK_N"] <= 64 * 128


def _wide(p: GemmView, meta):
    """The same of `tiles`: on NVIDIA's GPUs 128 x 128, which load less, win where K is small and odd."""
    square = (meta["BLOCK_M"], meta["BLOCK_N"], meta["BLOCK_K"]) == (128, 128, 64)
    return small(p, meta) or (square and p.arch not in AMD)


def tiles_of(meta):
    """The tiles of C."""
    return cdiv(meta["M"], meta["BLOCK_M"]) * cdiv(meta["N"], meta["BLOCK_N"])


# ---- the kernels ---------------------------------------------------------------------------------


@gemm(
    grid=lambda meta: (tiles_of(meta),),
    dtypes=("bf16", "fp16", "fp8"),
    configs=lambda p: configurations(p, HOPPER, CDNA[p.layout[0] == "c" :]),
    arguments=operands_and_order,
    constraints=near,
    general=_wide,
)
@triton.jit
def tiles(
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
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """One program a tile of C."""
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    zero = row * 0
    sums = product(
        a_ptr, b_ptr, row, column, zero, K, M, N, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_M, BLOCK_N, BLOCK_K, A_BY_ROW, B_BY_ROW,
    )  # fmt: skip
    store(c_ptr, sums, row, column, M, N, stride_cm, BLOCK_M, BLOCK_N)


@gemm(
    grid=lambda meta: (minimum(tiles_of(meta), meta["UNITS"]),),
    configs=lambda p: configurations(p, HOPPER_PERSISTENT, CDNA_PERSISTENT),
    arguments=lambda p: operands_and_order(p) | {"UNITS": p.compute_units},
    constraints=near,
    general=False,
)
@triton.jit
def persistent(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    UNITS,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """As many programs as compute units; each takes every UNITS-th tile."""
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        row, column = place_of(tile, rows, columns, GROUP_M)
        zero = row * 0
        sums = product(
            a_ptr, b_ptr, row, column, zero, K, M, N, stride_am, stride_ak, stride_bk, stride_bn,
            BLOCK_M, BLOCK_N, BLOCK_K, A_BY_ROW, B_BY_ROW,
        )  # fmt: skip
        store(c_ptr, sums, row, column, M, N, stride_cm, BLOCK_M, BLOCK_N)


@triton.jit
def add_parts(parts_ptr, c_ptr, values, SPLIT_K: tl.constexpr, SUM_BLOCK: tl.constexpr):
    """Adds up the parts of each value of C, in their order."""
    at = tl.program_id(0).to(tl.int64) * SUM_BLOCK + tl.arange(0, SUM_BLOCK)
    total = tl.zeros((SUM_BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts_ptr + part * values.to(tl.int64) + at, mask=at < values, other=0.0)
    tl.store(c_ptr + at, total.to(c_ptr.dtype.element_ty), mask=at < values)


ADD_PARTS = [
    launch(
        add_parts,
        arguments=lambda p: {
            **{"parts_ptr": p.workspace("fp32"), "c_ptr": p.c},
            **{"values": p.M * p.N, "SUM_BLOCK": SUM_BLOCK},
        },
        grid=lambda meta: (cdiv(meta["values"], SUM_BLOCK),),
    )
]
"""What follows a product whose parts lie in a workspace."""


def parts_fit(meta):
    """Every part has some steps, and the parts of C fit into memory."""
    yield (2 * meta["SPLIT_K"] * meta["BLOCK_K"] <= meta["K"], "a part would be less than two steps deep")
    yield (meta["M"] * meta["N"] * meta["SPLIT_K"] < 2**28, "the parts of C would take more than 1 GiB")


def _deep(p: GemmView, meta):
    yield from near(p, meta)
    yield from parts_fit(meta)


@gemm(
    grid=lambda meta: (tiles_of(meta), meta["SPLIT_K"]),
    configs=lambda p: [
        one for parts in SPLITS for one in configurations(p, HOPPER_SPLIT, CDNA_SPLIT, SPLIT_K=parts)
    ],
    arguments=lambda p: operands_and_order(p) | {"parts_ptr": p.workspace("fp32")},
    constraints=_deep,
    general=lambda p, meta: small(p, meta) and meta["SPLIT_K"] == SPLITS[0],
    workspace_bytes=lambda p, meta: 4 * p.M * p.N * meta["SPLIT_K"],
    after=ADD_PARTS,
)
@triton.jit
def split_k(
    a_ptr,
    b_ptr,
    parts_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    A_BY_ROW: tl.constexpr,
    B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """One program a tile and part of the depth. Parts are whole steps of BLOCK_K."""
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    part = tl.program_id(1)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    first = part * share
    end = min(K, first + share)
    sums = product(
        a_ptr, b_ptr, row, column, min(first, end), end, M, N, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_M, BLOCK_N, BLOCK_K, A_BY_ROW, B_BY_ROW,
    )  # fmt: skip
    store(parts_ptr + part.to(tl.int64) * M * N, sums, row, column, M, N, N, BLOCK_M, BLOCK_N)


# ROWS, BLOCK_N, BLOCK_K, num_warps, STAGES
FEW_ROWS = ((1, 8, 512, 4, 4), (1, 4, 1024, 4, 3), (1, 16, 256, 4, 4), (2, 8, 512, 4, 4), (4, 8, 256, 4, 4))


@gemm(
    grid=lambda meta: (cdiv(meta["N"], meta["BLOCK_N"]),),
    layouts=("rcr",),
    configs=[
        {"ROWS": rows, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "STAGES": stages}
        for rows, n, k, warps, stages in FEW_ROWS
    ],
    constraints=lambda p, meta: [
        (meta["ROWS"] >= p.M, "A has more rows"),
        (meta["ROWS"] < 2 * p.M, "A has at most half as many rows"),
        (p.K * meta["BLOCK_N"] < 2**30, "a tile spans more than 2^30 elements"),
    ],
)
@triton.jit
def few_rows(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_cm,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Each program reads BLOCK_N columns of B once, as wide loads, and sums over the threads at the end."""
    r, n, k = tl.arange(0, ROWS), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    column = tl.program_id(0)
    b = b_ptr + column.to(tl.int64) * BLOCK_N * K
    n_there, r_there = column * BLOCK_N + n < N, r < M
    sums = tl.zeros((ROWS, BLOCK_N, BLOCK_K), dtype=tl.float32)
    for depth in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k_there = k < K - depth
        x = tl.load(
            a_ptr + depth + r[:, None] * K + k[None, :], mask=r_there[:, None] & k_there[None, :], other=0.0
        )
        y = tl.load(
            b + depth + n[:, None] * K + k[None, :], mask=n_there[:, None] & k_there[None, :], other=0.0
        )
        sums += x.to(tl.float32)[:, None, :] * y.to(tl.float32)[None, :, :]
    total = tl.sum(sums, axis=2)
    c = c_ptr + column.to(tl.int64) * BLOCK_N + r[:, None] * stride_cm + n[None, :]
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=r_there[:, None] & n_there[None, :])
