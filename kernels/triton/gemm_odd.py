"""Matrix products in Triton by the tensor memory accelerator, for rows that no descriptor can have.

Those do not begin at multiples of 16 bytes.

tma_odd   for rows of C alone: C is stored without a descriptor
padded    copies the operands to rows that are a multiple of 16 bytes apart, then runs tma_odd on the
          copies; both are timed
"""

import triton
import triton.language as tl
from gemm import place_of, store, tiles_of

from tile_oracle.triton import GemmView, cdiv, gemm, launch, minimum

ALIGNED = 8
"""Elements of 16 bytes."""
ROWS, COLUMNS = 8, 128
"""What a program of the copy moves at a time."""
# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, RESIDENT, and whether it computes the transpose
CONFIGS = (
    *((128, 256, 64, 8, 3, 1, False), (128, 128, 64, 8, 4, 1, False), (128, 128, 64, 4, 4, 1, False)),
    *((64, 128, 64, 4, 4, 2, False), (128, 64, 64, 4, 4, 2, False), (64, 64, 64, 4, 5, 2, False)),
    # Of several programs a unit one loads while another stores, which takes long where rows are not aligned.
    *((128, 128, 64, 4, 3, 2, False), (64, 128, 64, 4, 3, 3, False), (64, 256, 64, 4, 2, 2, False)),
    *((128, 16, 64, 4, 5, 2, False), (16, 64, 128, 4, 5, 2, True), (16, 128, 128, 4, 4, 1, True)),
    *((32, 64, 128, 4, 5, 2, True), (64, 64, 128, 4, 4, 1, True)),
)
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages", "RESIDENT", "SWAPPED")


def programs(meta):
    """As many as run at once, at most a program a tile."""
    return (minimum(tiles_of(meta), meta["UNITS"] * meta["RESIDENT"]),)


def pitch_of(p: GemmView):
    """Elements from one copied row to the next."""
    return cdiv(p.K, ALIGNED) * ALIGNED


def copies(p: GemmView):
    """Where the copies of A and B are."""
    return p.workspace(p.dtype), p.workspace(p.dtype, 2 * p.M * pitch_of(p))


def _few(p: GemmView):
    if p.configuration["SWAPPED"]:
        yield (4 * p.configuration["BLOCK_M"] >= p.M, "A has more than four tiles of rows")


def _odd_result(p: GemmView, meta):
    yield (p.K % ALIGNED == 0, "rows of A and B do not begin at multiples of 16 bytes")
    yield (p.N % ALIGNED != 0, "rows of C begin at multiples of 16 bytes")
    yield from _few(p)


def _odd_operands(p: GemmView, meta):
    yield (p.K % ALIGNED != 0, "rows of A and B begin at multiples of 16 bytes")
    yield (p.M * pitch_of(p) < 2**30, "the copy of A would take more than 2 GiB")
    yield (p.N * pitch_of(p) < 2**30, "the copy of B would take more than 2 GiB")
    yield from _few(p)


def _configs(p: GemmView):
    return [dict(zip(NAMES, values, strict=True)) | {"GROUP_M": 8} for values in CONFIGS]


def _arguments(p: GemmView, a, b, pitch):
    numbers = {"M": p.M, "N": p.N, "K": p.K, "pitch": pitch, "UNITS": p.compute_units}
    return {"a_ptr": a, "b_ptr": b, "c_ptr": p.c, "stride_cm": p.stride_cm} | numbers


@gemm(
    grid=programs,
    layouts=("rcr",),
    configs=_configs,
    arguments=lambda p: _arguments(p, p.a, p.b, p.K),
    constraints=_odd_result,
    aligned=(),
    archs=("sm_90",),
)
@triton.jit
def tma_odd(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    pitch,
    UNITS,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    RESIDENT: tl.constexpr,
    SWAPPED: tl.constexpr,
):
    """Rows of A and columns of B are `pitch` elements apart; what follows their K elements is not read."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [pitch, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [pitch, 1], [BLOCK_N, BLOCK_K])
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        row, column = place_of(tile, rows, columns, GROUP_M)
        m, n = row * BLOCK_M, column * BLOCK_N
        if SWAPPED:
            turned = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                turned = tl.dot(b.load([n, k]), a.load([m, k]).T, turned)
            sums = turned.T
        else:
            sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                sums = tl.dot(a.load([m, k]), b.load([n, k]).T, sums)
        # Depends on the tile, as nothing else in the offsets within it does: they would be kept in registers.
        stride = tl.where(row >= 0, stride_cm, 0)
        store(c_ptr, sums, row, column, M, N, stride, BLOCK_M, BLOCK_N)


@triton.jit
def copy_rows(source, target, first, rows, K, pitch, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copies ROWS rows of K elements to rows that are `pitch` elements apart."""
    row = first + tl.arange(0, ROWS)
    there = (row < rows)[:, None]
    at = tl.arange(0, COLUMNS)
    source += row.to(tl.int64)[:, None] * K + at[None, :]
    target += row.to(tl.int64)[:, None] * pitch + at[None, :]
    for column in range(0, K, COLUMNS):
        mask = there & (at < K - column)[None, :]
        tl.store(target + column, tl.load(source + column, mask=mask), mask=mask)


@gemm(
    grid=lambda meta: (cdiv(meta["M"], ROWS) + cdiv(meta["N"], ROWS),),
    layouts=("rcr",),
    configs=_configs,
    arguments=lambda p: {
        **dict(zip(("a_ptr", "b_ptr", "to_a_ptr", "to_b_ptr"), (p.a, p.b, *copies(p)), strict=True)),
        **{"M": p.M, "N": p.N, "K": p.K, "pitch": pitch_of(p), "ROWS": ROWS, "COLUMNS": COLUMNS},
    },
    constraints=_odd_operands,
    workspace_bytes=lambda p, meta: 2 * (p.M + p.N) * pitch_of(p),
    after=[launch(tma_odd, arguments=lambda p: _arguments(p, *copies(p), pitch_of(p)), grid=programs)],
    aligned=(),
    archs=("sm_90",),
)
@triton.jit
def padded(
    a_ptr,
    b_ptr,
    to_a_ptr,
    to_b_ptr,
    M,
    N,
    K,
    pitch,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program copies ROWS rows of A or columns of B."""
    blocks = tl.cdiv(M, ROWS)
    block = tl.program_id(0)
    if block < blocks:
        copy_rows(a_ptr, to_a_ptr, block * ROWS, M, K, pitch, ROWS, COLUMNS)
    else:
        copy_rows(b_ptr, to_b_ptr, (block - blocks) * ROWS, N, K, pitch, ROWS, COLUMNS)
