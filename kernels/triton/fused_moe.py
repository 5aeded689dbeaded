"""Products of a mixture of experts in Triton: C[pair] = A[token] B[expert]^T, accumulated in fp32.

fp8 has scales of blocks of 128, or of rows or tensors, for which a whole sum is multiplied once.

    experts             one program a tile: a block of an expert's rows by columns
    experts_persistent  programs stay on their compute unit and take further tiles
    experts_tma         the same; weights by Hopper's tensor memory accelerator

Pairs of a token and an expert of it are sorted by expert before, each expert's padded to blocks of BLOCK_M
rows; GROUP_M, num_warps and num_stages mean what they mean in the tuners of vLLM and SGLang. SWAPPED computes
the transpose, for few rows: Hopper's wide matrix instructions have at least 64.
"""

import triton
import triton.language as tl
from gemm import AMD, place_of
from scaled_gemm import BLOCK, scaled, with_scales

from tile_oracle.triton import FusedMoeView, cdiv, fused_moe, minimum


@triton.jit
def rows_of_block(sorted_token_ids_ptr, row, num_valid_tokens, top_k, BLOCK_M: tl.constexpr):
    """The pairs of a block, which of them are no padding, and their rows of A, the first one for padding."""
    pairs = tl.load(sorted_token_ids_ptr + row * BLOCK_M + tl.arange(0, BLOCK_M))
    there = pairs < num_valid_tokens
    return pairs, there, tl.where(there, pairs // top_k, 0).to(tl.int64)


@triton.jit
def step_of_product(
    sums, x, y, a_scale_ptr, b_scale_ptr, a_rows, expert, n, left, depth, N, K,
    SCALE: tl.constexpr, SWAPPED: tl.constexpr,
):  # fmt: skip
    """The sums with the product of a step. x: rows of A; y: rows of B, n, from `left` on. Hopper adds fp8 up
    in some 14 bits: the product of every step, at most 128 deep, has sums of its own."""
    if SCALE == "none":
        sums = tl.dot(y, x.T, sums) if SWAPPED else tl.dot(x, y.T, sums)
    else:
        part = tl.dot(y, x.T) if SWAPPED else tl.dot(x, y.T)
        if SCALE == "block":
            block, blocks = depth // BLOCK, tl.cdiv(K, BLOCK)
            factors = tl.load(a_scale_ptr + a_rows * blocks + block)
            of_expert = b_scale_ptr + expert * tl.cdiv(N, BLOCK) * blocks + block
            part = with_scales(part, factors, of_expert, n, left, blocks, N, SWAPPED)
        sums += part
    return sums


@triton.jit
def no_sums(BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SWAPPED: tl.constexpr):
    """Zeros of a tile."""
    if SWAPPED:
        sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    return sums


@triton.jit
def store(
    c_ptr, topk_weights_ptr, a_scale_ptr, b_scale_ptr, sums, pairs, there, a_rows, expert, n, N,
    num_valid_tokens, MUL_ROUTED_WEIGHT: tl.constexpr, SCALE: tl.constexpr, SWAPPED: tl.constexpr,
):  # fmt: skip
    """Writes the rows of a tile that are no padding, times the weights of their pairs and the scales of rows
    or tensors."""
    if SCALE == "tensor":
        b_scale_ptr += expert
    if SCALE == "row":
        b_scale_ptr += expert * N
    sums = scaled(sums, a_scale_ptr, b_scale_ptr, a_rows, n, num_valid_tokens, N, SCALE, SWAPPED)
    if MUL_ROUTED_WEIGHT:
        sums *= tl.load(topk_weights_ptr + pairs, mask=there, other=0.0)[:, None]
    at = pairs.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(c_ptr + at, sums.to(c_ptr.dtype.element_ty), mask=there[:, None] & (n < N)[None, :])


@triton.jit
def tile(
    a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr, a_scale_ptr, b_scale_ptr,
    row, column, N, K, num_valid_tokens, top_k, MUL_ROUTED_WEIGHT: tl.constexpr, SCALE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SWAPPED: tl.constexpr,
):  # fmt: skip
    """One tile of the result."""
    pairs, there, a_rows = rows_of_block(sorted_token_ids_ptr, row, num_valid_tokens, top_k, BLOCK_M)
    expert = tl.load(expert_ids_ptr + row).to(tl.int64)
    j, k = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    n = column * BLOCK_N + j
    # Rows beyond the expert's weights are read from the tile's first: that needs no mask.
    a = a_ptr + a_rows[:, None] * K + k[None, :]
    b = b_ptr + (expert * N + column * BLOCK_N) * K + (tl.where(n < N, j, 0)[:, None] * K + k[None, :])
    sums = no_sums(BLOCK_M, BLOCK_N, SWAPPED)
    for depth in range(0, K, BLOCK_K):
        k_there = (k < K - depth)[None, :]
        x = tl.load(a + depth, mask=k_there, other=0.0)
        y = tl.load(b + depth, mask=k_there, other=0.0)
        sums = step_of_product(
            sums, x, y, a_scale_ptr, b_scale_ptr, a_rows, expert, n, column * BLOCK_N, depth, N, K,
            SCALE, SWAPPED,
        )  # fmt: skip
    store(
        c_ptr, topk_weights_ptr, a_scale_ptr, b_scale_ptr, sums, pairs, there, a_rows, expert, n, N,
        num_valid_tokens, MUL_ROUTED_WEIGHT, SCALE, SWAPPED,
    )  # fmt: skip


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, num_warps, num_stages. The first are what vLLM uses by default.
HOPPER = (
    *((16, 64, 128, 1, 4, 4), (32, 64, 128, 1, 4, 3), (64, 128, 64, 1, 4, 3), (64, 128, 64, 1, 8, 3)),
    *((128, 128, 64, 1, 8, 3), (128, 128, 64, 16, 8, 3), (64, 64, 32, 8, 4, 3), (16, 32, 64, 1, 4, 3)),
    *((16, 64, 64, 1, 4, 4), (16, 64, 128, 16, 4, 3), (16, 128, 128, 1, 4, 3), (16, 128, 64, 1, 4, 5)),
    *((16, 128, 256, 1, 8, 3), (16, 256, 128, 1, 8, 3), (32, 128, 128, 1, 4, 3), (32, 128, 64, 1, 4, 3)),
    *((32, 256, 128, 1, 8, 3), (64, 64, 128, 16, 4, 4), (64, 128, 128, 16, 4, 3), (64, 256, 64, 16, 8, 4)),
    *((128, 128, 64, 16, 4, 3), (128, 128, 64, 64, 8, 4), (128, 256, 64, 16, 8, 3), (128, 256, 64, 64, 8, 4)),
    *((256, 128, 64, 16, 8, 3),),
)
HOPPER_SWAPPED = (
    *((16, 64, 128, 1, 4, 5), (16, 128, 128, 1, 4, 4), (16, 128, 64, 1, 4, 6), (16, 256, 64, 1, 8, 4)),
    *((32, 64, 128, 1, 4, 5), (32, 128, 128, 1, 4, 4), (32, 128, 64, 16, 4, 6), (64, 128, 64, 16, 4, 4)),
    *((16, 64, 256, 1, 4, 4),),
)
CDNA = (
    *((16, 64, 128, 1, 4, 2), (32, 64, 128, 1, 4, 2), (64, 128, 64, 1, 8, 2), (128, 128, 64, 16, 8, 2)),
    *((16, 128, 128, 1, 4, 2), (16, 128, 64, 1, 4, 3), (16, 256, 64, 1, 8, 2), (32, 128, 128, 1, 4, 2)),
    *((32, 128, 64, 4, 4, 2), (64, 64, 64, 8, 4, 2), (64, 128, 64, 8, 4, 2), (64, 256, 64, 8, 8, 2)),
    *((128, 128, 64, 8, 4, 2), (128, 256, 64, 8, 8, 2), (256, 128, 64, 8, 8, 2), (32, 256, 64, 1, 8, 2)),
)
# With RESIDENT programs a compute unit
PERSISTENT = (
    *((16, 128, 128, 1, 4, 4, 2), (32, 128, 128, 1, 4, 4, 2), (64, 128, 64, 16, 4, 4, 2)),
    *((128, 128, 64, 16, 8, 4, 1), (128, 256, 64, 16, 8, 3, 1)),
)
PERSISTENT_SWAPPED = ((16, 64, 128, 1, 4, 5, 3), (16, 128, 128, 1, 4, 5, 2), (32, 128, 64, 1, 4, 6, 2))
CDNA_PERSISTENT = (
    *((16, 128, 128, 1, 4, 2, 2), (64, 128, 64, 8, 4, 2, 2), (128, 128, 64, 8, 4, 2, 1)),
    *((128, 256, 64, 8, 8, 2, 1),),
)
TMA = (
    *((64, 128, 64, 16, 4, 4, 2), (64, 256, 64, 16, 8, 4, 1), (128, 128, 64, 16, 8, 4, 1)),
    *((128, 256, 64, 16, 8, 3, 1), (128, 128, 128, 16, 8, 3, 1)),
)
TMA_SWAPPED = (
    *((16, 64, 128, 1, 4, 6, 2), (16, 128, 128, 1, 4, 5, 1), (16, 128, 64, 1, 4, 5, 2)),
    *((32, 128, 64, 1, 4, 5, 2), (64, 128, 64, 16, 4, 4, 2)),
)
# fp8: a step is at most as deep as what shares a scale. The first is the default of vLLM and SGLang.
HOPPER_FP8 = (
    *((64, 128, 128, 32, 4, 3), (16, 128, 128, 1, 4, 4), (16, 64, 128, 1, 4, 5), (16, 128, 128, 32, 4, 3)),
    *((16, 256, 128, 1, 8, 3), (32, 128, 128, 1, 4, 3), (32, 64, 128, 16, 4, 4), (64, 64, 128, 16, 4, 4)),
    *(
        (64, 128, 128, 16, 4, 4),
        (64, 256, 128, 16, 8, 3),
        (128, 64, 128, 16, 4, 4),
        (128, 128, 128, 16, 8, 3),
    ),
    *((128, 128, 128, 32, 8, 4), (128, 128, 128, 16, 4, 3)),
)
# With scales of rows or tensors, the defaults of vLLM and SGLang but for the largest, which spills.
HOPPER_FP8_WHOLE = (
    *((16, 64, 128, 1, 4, 4), (32, 64, 128, 1, 4, 3), (64, 128, 128, 1, 4, 3), (64, 128, 128, 1, 8, 3)),
    *((128, 128, 128, 1, 8, 3), (64, 128, 128, 1, 4, 4)),
)
HOPPER_FP8_SWAPPED = (
    *((16, 64, 128, 1, 4, 5), (16, 128, 128, 1, 4, 4), (16, 128, 128, 1, 4, 3), (16, 256, 128, 1, 8, 4)),
    *((32, 64, 128, 1, 4, 5), (32, 128, 128, 1, 4, 4), (64, 64, 128, 16, 4, 4), (64, 128, 128, 16, 4, 4)),
    *((128, 128, 128, 16, 8, 3),),
)
PERSISTENT_FP8 = (
    *((16, 128, 128, 1, 4, 4, 2), (64, 128, 128, 16, 4, 4, 2), (64, 128, 128, 16, 4, 3, 3)),
    *((128, 128, 128, 16, 8, 4, 1),),
)
PERSISTENT_FP8_SWAPPED = (
    *((16, 64, 128, 1, 4, 6, 3), (16, 128, 128, 1, 4, 5, 2), (32, 128, 128, 1, 4, 4, 2)),
    *((64, 128, 128, 16, 4, 4, 2),),
)
TMA_FP8 = (
    *((64, 64, 128, 16, 4, 5, 3), (64, 128, 128, 16, 4, 4, 2), (64, 256, 128, 16, 8, 3, 1)),
    *((128, 128, 128, 16, 8, 4, 1), (128, 128, 128, 16, 8, 3, 1)),
)
TMA_FP8_SWAPPED = (
    *((16, 64, 128, 1, 4, 6, 3), (16, 128, 128, 1, 4, 5, 2), (32, 64, 128, 1, 4, 6, 3)),
    *((32, 128, 128, 1, 4, 5, 2), (64, 128, 128, 16, 4, 4, 2)),
)
CDNA_FP8 = (
    *((64, 128, 128, 32, 4, 2), (16, 64, 128, 1, 4, 2), (16, 128, 128, 1, 4, 2), (32, 64, 128, 1, 4, 2)),
    *((32, 128, 128, 1, 4, 2), (64, 64, 128, 8, 4, 2), (64, 128, 128, 8, 8, 2), (128, 64, 128, 8, 4, 2)),
    *((128, 128, 128, 8, 8, 2), (128, 128, 128, 8, 4, 2)),
)
CDNA_PERSISTENT_FP8 = ((16, 128, 128, 1, 4, 2, 2), (64, 128, 128, 8, 4, 2, 2), (128, 128, 128, 8, 8, 2, 1))
SCALES = ("tensor", "row", "block")
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages", "RESIDENT")


def configurations(p: FusedMoeView, of_bf16, of_fp8):
    """Configurations of an architecture: Hopper's, those with the transpose, and AMD's, which use 16-wide
    matrix instructions."""
    of_hopper, of_hopper_swapped, of_cdna = of_bf16 if p.dtype == "bf16" else of_fp8
    if p.scale in ("tensor", "row") and of_hopper is HOPPER_FP8:
        of_hopper += HOPPER_FP8_WHOLE
    if p.arch in AMD:
        groups = ((of_cdna, {"SWAPPED": False, "matrix_instr_nonkdim": 16}),)
    else:
        groups = ((of_hopper, {"SWAPPED": False}), (of_hopper_swapped, {"SWAPPED": True}))
    return [dict(zip(NAMES, values, strict=False)) | more for group, more in groups for values in group]


def operands(p: FusedMoeView):
    """The usual arguments; weights are read from a tile's 64-bit base on, by 32-bit offsets."""
    return p.usual_arguments() | {"b_ptr": p.b_of_expert}


def near(p: FusedMoeView, meta):
    """Offsets within a tile are 32-bit."""
    yield (p.K * meta["BLOCK_N"] < 2**30, "a tile spans more than 2^30 elements")


def small(p: FusedMoeView, meta):
    """Whether to compile for unaligned problems, too: large tiles would take long, and are slow there."""
    return meta["BLOCK_M"] * meta["BLOCK_N"] <= 32 * 128


def _rows_of_16_bytes(p: FusedMoeView, meta):
    """What tensor descriptors demand of the distance between rows."""
    yield (p.K % (8 if p.dtype == "bf16" else 16) == 0, "rows of B do not begin at multiples of 16 bytes")
    yield (p.experts * p.N < 2**31, "B has more than 2^31 rows")


def tiles_of(meta):
    """The most tiles of the result."""
    return cdiv(meta["EM"], meta["BLOCK_M"]) * cdiv(meta["N"], meta["BLOCK_N"])


# ---- the kernels ---------------------------------------------------------------------------------


@fused_moe(
    grid=lambda meta: (tiles_of(meta),),
    configs=lambda p: configurations(
        p, (HOPPER, HOPPER_SWAPPED, CDNA), (HOPPER_FP8, HOPPER_FP8_SWAPPED, CDNA_FP8)
    ),
    arguments=operands,
    constraints=near,
    general=small,
    archs=("sm_90", "gfx950"),
    scales=SCALES,
)
@triton.jit
def experts(
    a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr,
    a_scale_ptr, b_scale_ptr, N, K, EM, num_valid_tokens, top_k, MUL_ROUTED_WEIGHT: tl.constexpr,
    SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SWAPPED: tl.constexpr,
):  # fmt: skip
    """One program a tile. Tiles beyond the last expert's have no work."""
    row, column = place_of(tl.program_id(0), tl.cdiv(EM, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    if row * BLOCK_M < tl.load(num_tokens_post_padded_ptr):
        tile(
            a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr,
            a_scale_ptr, b_scale_ptr, row, column, N, K, num_valid_tokens, top_k, MUL_ROUTED_WEIGHT,
            SCALE, BLOCK_M, BLOCK_N, BLOCK_K, SWAPPED,
        )  # fmt: skip


@fused_moe(
    grid=lambda meta: (minimum(tiles_of(meta), meta["UNITS"] * meta["RESIDENT"]),),
    configs=lambda p: configurations(
        p,
        (PERSISTENT, PERSISTENT_SWAPPED, CDNA_PERSISTENT),
        (PERSISTENT_FP8, PERSISTENT_FP8_SWAPPED, CDNA_PERSISTENT_FP8),
    ),
    arguments=lambda p: operands(p) | {"UNITS": p.compute_units},
    constraints=near,
    general=False,
    archs=("sm_90", "gfx950"),
    scales=SCALES,
)
@triton.jit
def experts_persistent(
    a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr,
    a_scale_ptr, b_scale_ptr, N, K, num_valid_tokens, top_k, UNITS, MUL_ROUTED_WEIGHT: tl.constexpr,
    SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SWAPPED: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """At most RESIDENT programs a compute unit, over the tiles that have work."""
    rows, columns = tl.load(num_tokens_post_padded_ptr) // BLOCK_M, tl.cdiv(N, BLOCK_N)
    for place in range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        row, column = place_of(place, rows, columns, GROUP_M)
        tile(
            a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr,
            a_scale_ptr, b_scale_ptr, row, column, N, K, num_valid_tokens, top_k, MUL_ROUTED_WEIGHT,
            SCALE, BLOCK_M, BLOCK_N, BLOCK_K, SWAPPED,
        )  # fmt: skip


@fused_moe(
    grid=lambda meta: (minimum(tiles_of(meta), meta["UNITS"] * meta["RESIDENT"]),),
    configs=lambda p: configurations(p, (TMA, TMA_SWAPPED, ()), (TMA_FP8, TMA_FP8_SWAPPED, ())),
    arguments=lambda p: p.usual_arguments() | {"UNITS": p.compute_units, "experts": p.experts},
    constraints=_rows_of_16_bytes,
    general=False,
    archs=("sm_90",),
    scales=SCALES,
)
@triton.jit
def experts_tma(
    a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr,
    a_scale_ptr, b_scale_ptr, N, K, num_valid_tokens, top_k, experts, UNITS, MUL_ROUTED_WEIGHT: tl.constexpr,
    SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SWAPPED: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """A tile's columns beyond an expert's are the next one's, and are not stored."""
    b = tl.make_tensor_descriptor(b_ptr, [experts * N, K], [K, 1], [BLOCK_N, BLOCK_K])
    k = tl.arange(0, BLOCK_K)
    rows, columns = tl.load(num_tokens_post_padded_ptr) // BLOCK_M, tl.cdiv(N, BLOCK_N)
    for place in range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        row, column = place_of(place, rows, columns, GROUP_M)
        pairs, there, a_rows = rows_of_block(sorted_token_ids_ptr, row, num_valid_tokens, top_k, BLOCK_M)
        a = a_ptr + a_rows[:, None] * K + k[None, :]
        expert, n = tl.load(expert_ids_ptr + row), column * BLOCK_N + tl.arange(0, BLOCK_N)
        sums = no_sums(BLOCK_M, BLOCK_N, SWAPPED)
        for depth in range(0, K, BLOCK_K):
            x = tl.load(a + depth, mask=(k < K - depth)[None, :], other=0.0)
            y = b.load([expert * N + column * BLOCK_N, depth])
            sums = step_of_product(
                sums, x, y, a_scale_ptr, b_scale_ptr, a_rows, expert, n, column * BLOCK_N, depth, N, K,
                SCALE, SWAPPED,
            )  # fmt: skip
        store(
            c_ptr, topk_weights_ptr, a_scale_ptr, b_scale_ptr, sums, pairs, there, a_rows, expert, n, N,
            num_valid_tokens, MUL_ROUTED_WEIGHT, SCALE, SWAPPED,
        )  # fmt: skip
