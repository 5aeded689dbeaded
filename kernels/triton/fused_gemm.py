"""Batches of products with an epilogue in Triton: C = activation(A B + bias), times or plus D, in fp32.

    fused_tiles     one program a tile of C
    fused_split_k   the depth is split over SPLIT_K programs; a second launch adds up their fp32 sums
    fused_tma       tiles by Hopper's tensor memory accelerator; programs stay on their compute unit

ACTIVATION is "", gelu, gelu_tanh or silu; LAST is "", mul or residual. bias_ptr and d_ptr are None where the
epilogue has no such operand.
"""

import triton
import triton.language as tl
from gemm import (
    CDNA,
    CDNA_SPLIT,
    SUM_BLOCK,
    configurations,
    near,
    parts_fit,
    place_of,
    product,
    store,
    tiles_of,
)
from gemm_tma import rows_of_16_bytes, tensor, tile_at

from tile_oracle.triton import FusedGemmView, cdiv, fused_gemm, launch, minimum

MOST_OF_GRID = 1 << 16


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """The activation of fp32 values. x (1 + tanh(s)) / 2 is x / (1 + exp(-2 s))."""
    if ACTIVATION == "gelu":
        return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        return x * tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))
    elif ACTIVATION == "silu":
        return x * tl.sigmoid(x)
    else:
        return x


@triton.jit
def with_d(x, d, LAST: tl.constexpr):
    """Values times or plus those of D."""
    return x * d.to(tl.float32) if LAST == "mul" else x + d.to(tl.float32)


@triton.jit
def finished(
    sums, bias_ptr, d_ptr, row, column, M, N,
    ACTIVATION: tl.constexpr, LAST: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The epilogue of a tile of sums. bias_ptr, d_ptr: of the tile's product."""
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    if bias_ptr is not None:
        sums += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    sums = activated(sums, ACTIVATION)
    if d_ptr is not None:
        m = row * BLOCK_M + tl.arange(0, BLOCK_M)
        there = (m < M)[:, None] & (n < N)[None, :]
        d = tl.load(d_ptr + m.to(tl.int64)[:, None] * N + n[None, :], mask=there, other=0.0)
        sums = with_d(sums, d, LAST)
    return sums


@triton.jit
def tile_of_product(
    a_ptr, b_ptr, one, tile, begin, end, M, N, K,
    A_BY_ROW: tl.constexpr, B_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of a tile of product `one` over depths from begin to end, and its row and column."""
    row, column = place_of(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    sums = product(
        a_ptr + one * M * K, b_ptr + one * K * N, row, column, begin, end, M, N,
        K if A_BY_ROW else 1, 1 if A_BY_ROW else M, N if B_BY_ROW else 1, 1 if B_BY_ROW else K,
        BLOCK_M, BLOCK_N, BLOCK_K, A_BY_ROW, B_BY_ROW,
    )  # fmt: skip
    return sums, row, column


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
HOPPER = (
    *((128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4)),
    *((64, 256, 64, 4, 4), (64, 128, 64, 4, 5), (64, 128, 128, 4, 3), (64, 64, 64, 4, 5)),
    *((32, 128, 64, 4, 5), (32, 64, 128, 4, 4), (16, 128, 64, 4, 5), (16, 64, 128, 4, 5)),
    *((16, 32, 256, 4, 4),),
)
HOPPER_SPLIT = ((64, 128, 64, 4, 5), (64, 64, 128, 4, 4), (16, 64, 128, 4, 5))
SPLITS = (2, 4, 8)
# With RESIDENT programs a compute unit
TMA = (
    *((128, 256, 64, 8, 3, 1), (128, 128, 64, 8, 4, 1), (128, 128, 128, 8, 3, 1), (64, 256, 64, 4, 4, 1)),
    *((128, 128, 64, 4, 4, 1), (64, 128, 64, 4, 3, 2), (128, 64, 64, 4, 4, 2), (64, 64, 64, 4, 5, 2)),
)
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages", "RESIDENT")


def _near(p: FusedGemmView, meta):
    yield from near(p, meta)
    yield (p.batch < MOST_OF_GRID, "the grid has less than 65,536 products")


def _deep(p: FusedGemmView, meta):
    yield from _near(p, meta)
    yield from parts_fit(meta)
    yield (p.batch * p.M * p.N * meta["SPLIT_K"] < 2**28, "the parts of C would take more than 1 GiB")


def _by_tma(p: FusedGemmView, meta):
    """Matrices of a batch are one to the accelerator: a tile must not reach into the next one."""
    yield from rows_of_16_bytes(p, meta)
    of_one = p.batch == 1
    yield (of_one | (p.M % meta["BLOCK_M"] == 0), "tiles reach into the next product's rows")
    if p.layout != "rcr":
        yield (of_one | (p.K % meta["BLOCK_K"] == 0), "tiles reach into the next product's depths")


def _small(p: FusedGemmView, meta):
    """Whether to compile for unaligned problems, too: large tiles would take long, and are slow there."""
    return meta["BLOCK_M"] * meta["BLOCK_N"] <= 64 * 64


# ---- the kernels ---------------------------------------------------------------------------------


@fused_gemm(
    grid=lambda meta: (tiles_of(meta), meta["batch"]),
    configs=lambda p: configurations(p, HOPPER, CDNA[p.layout[0] == "c" :]),
    constraints=_near,
    general=_small,
    archs=("sm_90", "gfx950"),
)
@triton.jit
def fused_tiles(
    a_ptr, b_ptr, bias_ptr, d_ptr, c_ptr, M, N, K,
    A_BY_ROW: tl.constexpr, B_BY_ROW: tl.constexpr, ACTIVATION: tl.constexpr, LAST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One program a tile of C of one product."""
    one = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    sums, row, column = tile_of_product(
        a_ptr, b_ptr, one, tile, tile * 0, K, M, N, K, A_BY_ROW, B_BY_ROW, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M
    )
    bias = bias_ptr + one * N if bias_ptr is not None else None
    d = d_ptr + one * M * N if d_ptr is not None else None
    sums = finished(sums, bias, d, row, column, M, N, ACTIVATION, LAST, BLOCK_M, BLOCK_N)
    store(c_ptr + one * M * N, sums, row, column, M, N, N, BLOCK_M, BLOCK_N)


@triton.jit
def finish_parts(
    parts_ptr, bias_ptr, d_ptr, c_ptr, N, of_product, values,
    ACTIVATION: tl.constexpr, LAST: tl.constexpr, SPLIT_K: tl.constexpr, SUM_BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds up the parts of each value of C, in their order, and applies the epilogue. of_product: M N."""
    at = tl.program_id(0).to(tl.int64) * SUM_BLOCK + tl.arange(0, SUM_BLOCK)
    there = at < values
    total = tl.zeros((SUM_BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts_ptr + part * values.to(tl.int64) + at, mask=there, other=0.0)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + at // of_product * N + at % N, mask=there, other=0.0).to(tl.float32)
    total = activated(total, ACTIVATION)
    if d_ptr is not None:
        total = with_d(total, tl.load(d_ptr + at, mask=there, other=0.0), LAST)
    tl.store(c_ptr + at, total.to(c_ptr.dtype.element_ty), mask=there)


@fused_gemm(
    grid=lambda meta: (tiles_of(meta), meta["batch"], meta["SPLIT_K"]),
    configs=lambda p: [
        one for parts in SPLITS for one in configurations(p, HOPPER_SPLIT, CDNA_SPLIT, SPLIT_K=parts)
    ],
    arguments=lambda p: p.usual_arguments() | {"parts_ptr": p.workspace("fp32")},
    constraints=_deep,
    general=False,
    archs=("sm_90", "gfx950"),
    workspace_bytes=lambda p, meta: 4 * p.batch * p.M * p.N * meta["SPLIT_K"],
    after=[
        launch(
            finish_parts,
            arguments=lambda p: (
                p.usual_arguments()
                | {"parts_ptr": p.workspace("fp32"), "of_product": p.M * p.N}
                | {"values": p.batch * p.M * p.N, "SUM_BLOCK": SUM_BLOCK}
            ),
            grid=lambda meta: (cdiv(meta["values"], SUM_BLOCK),),
        )
    ],
)
@triton.jit
def fused_split_k(
    a_ptr, b_ptr, parts_ptr, M, N, K, batch,
    A_BY_ROW: tl.constexpr, B_BY_ROW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """One program a tile and part of the depth of one product. Parts are whole steps of BLOCK_K."""
    one, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    end = min(K, part * share + share)
    sums, row, column = tile_of_product(
        a_ptr, b_ptr, one, tl.program_id(0), min(part * share, end), end, M, N, K, A_BY_ROW, B_BY_ROW,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
    )  # fmt: skip
    store(parts_ptr + (part * batch + one) * M * N, sums, row, column, M, N, N, BLOCK_M, BLOCK_N)


@fused_gemm(
    grid=lambda meta: (minimum(tiles_of(meta) * meta["batch"], meta["UNITS"] * meta["RESIDENT"]),),
    configs=[dict(zip(NAMES, values, strict=True)) | {"GROUP_M": 8} for values in TMA],
    arguments=lambda p: p.usual_arguments() | {"UNITS": p.compute_units},
    constraints=_by_tma,
    aligned=(),
    archs=("sm_90",),
)
@triton.jit
def fused_tma(
    a_ptr, b_ptr, bias_ptr, d_ptr, c_ptr, M, N, K, batch, UNITS,
    A_BY_ROW: tl.constexpr, B_BY_ROW: tl.constexpr, ACTIVATION: tl.constexpr, LAST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    RESIDENT: tl.constexpr,
):  # fmt: skip
    """At most RESIDENT programs a compute unit. All matrices of an operand are one with as many more rows."""
    if A_BY_ROW:
        a = tensor(a_ptr, batch * M, K, True, BLOCK_M, BLOCK_K)
    else:
        a = tensor(a_ptr, M, batch * K, False, BLOCK_M, BLOCK_K)
    if B_BY_ROW:
        b = tensor(b_ptr, batch * K, N, True, BLOCK_K, BLOCK_N)
    else:
        b = tensor(b_ptr, K, batch * N, False, BLOCK_K, BLOCK_N)
    c = tl.make_tensor_descriptor(c_ptr, [batch * M, N], [N, 1], [BLOCK_M, BLOCK_N])
    if d_ptr is not None:
        d = tl.make_tensor_descriptor(d_ptr, [batch * M, N], [N, 1], [BLOCK_M, BLOCK_N])
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    of_product = rows * columns
    for number in range(tl.program_id(0), batch * of_product, tl.num_programs(0)):
        one = number // of_product
        row, column = place_of(number % of_product, rows, columns, GROUP_M)
        m, n = row * BLOCK_M, column * BLOCK_N
        of_a = one * (M if A_BY_ROW else 0) + m
        of_b = one * (0 if B_BY_ROW else N) + n
        a_depth, b_depth = one * (0 if A_BY_ROW else K), one * (K if B_BY_ROW else 0)
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x = tile_at(a, of_a, a_depth + k, A_BY_ROW)
            sums = tl.dot(x, tile_at(b, b_depth + k, of_b, B_BY_ROW), sums)
        if bias_ptr is not None:
            at = n + tl.arange(0, BLOCK_N)
            bias = tl.load(bias_ptr + one.to(tl.int64) * N + at, mask=at < N, other=0.0)
            sums += bias.to(tl.float32)[None, :]
        sums = activated(sums, ACTIVATION)
        if d_ptr is not None:
            sums = with_d(sums, d.load([one * M + m, n]), LAST)
        c.store([one * M + m, n], sums.to(c_ptr.dtype.element_ty))
