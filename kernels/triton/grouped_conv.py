"""Grouped convolution, forward, 2D, in Triton: an implicit matrix product, accumulated in fp32.

Rows are output pixels, columns the output channels of a group, and the depth is filter taps times the input
channels of a group. The second extent of the grid is the group. Offsets are 32-bit.
"""

import triton
import triton.language as tl

from tile_oracle.triton import GroupedConvView, cdiv, grouped_conv

AMD = ("gfx950", "gfx942", "gfx90a")

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
HOPPER = (
    *((128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 64, 4, 4)),
    *((128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 5), (64, 64, 128, 4, 3)),
    *((128, 32, 64, 4, 4), (64, 32, 32, 4, 4), (128, 16, 32, 4, 4), (64, 16, 16, 4, 3)),
)
CDNA = (
    *((128, 256, 64, 8, 2), (256, 128, 64, 8, 2), (128, 128, 64, 8, 2), (128, 128, 64, 4, 2)),
    *((128, 64, 64, 4, 2), (64, 128, 64, 4, 2), (64, 64, 64, 4, 2), (64, 64, 128, 4, 2)),
    *((128, 32, 64, 4, 2), (64, 32, 32, 4, 2), (128, 16, 32, 4, 2), (64, 16, 32, 4, 2)),
)
OLDER_CDNA_LDS = 64 * 1024
MOST_ELEMENTS = 2**31


def _configs(p: GroupedConvView):
    found = []
    for m, n, k, warps, stages in CDNA if p.arch in AMD else HOPPER:
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
        found.append(one)
    return found


def _near(p: GroupedConvView, meta):
    why = "an array has 2^31 elements or more"
    yield (p.N * p.Hi * p.Wi * p.C < MOST_ELEMENTS, why)
    yield (p.N * p.Ho * p.Wo * p.K < MOST_ELEMENTS, why)
    yield (p.K * p.Y * p.X * p.C_per_group < MOST_ELEMENTS, why)


def _grid(meta):
    rows = meta["N"] * meta["Ho"] * meta["Wo"]
    return cdiv(rows, meta["BLOCK_M"]) * cdiv(meta["K_per_group"], meta["BLOCK_N"]), meta["G"]


@grouped_conv(
    grid=_grid,
    configs=_configs,
    arguments=lambda p: p.usual_arguments(),
    constraints=_near,
    aligned=("C", "C_per_group", "K", "K_per_group"),
    general=lambda p, meta: meta["BLOCK_M"] * meta["BLOCK_N"] <= 64 * 64,
)
@triton.jit
def implicit(
    x_ptr,
    w_ptr,
    y_ptr,
    N,
    C,
    K,
    G,
    Hi,
    Wi,
    Y,
    X,
    Ho,
    Wo,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    dilation_h,
    dilation_w,
    C_per_group,
    K_per_group,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """One program a tile of output pixels and channels of a group."""
    pixels = N * Ho * Wo
    rows, columns = tl.cdiv(pixels, BLOCK_M), tl.cdiv(K_per_group, BLOCK_N)
    tile, group = tl.program_id(0), tl.program_id(1)
    first = tile // (GROUP_M * columns) * GROUP_M
    height = min(rows - first, GROUP_M)
    within = tile % (GROUP_M * columns)
    pixel = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    image, place = pixel // (Ho * Wo), pixel % (Ho * Wo)
    top = place // Wo * stride_h - pad_h
    left = place % Wo * stride_w - pad_w
    x_row = image * Hi
    w_row = (group * K_per_group + channel) * Y * X
    pixel_there, channel_there = pixel < pixels, channel < K_per_group
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    steps = tl.cdiv(C_per_group, BLOCK_K)
    for step in range(0, Y * X * steps):
        tap, depth = step // steps, step % steps * BLOCK_K
        h = top + tap // X * dilation_h
        w = left + tap % X * dilation_w
        there = pixel_there & (h >= 0) & (h < Hi) & (w >= 0) & (w < Wi)
        k_there = k < C_per_group - depth
        x_at = ((x_row + h) * Wi + w) * C + group * C_per_group + depth
        a = tl.load(x_ptr + x_at[:, None] + k[None, :], mask=there[:, None] & k_there[None, :], other=0.0)
        w_at = (w_row + tap) * C_per_group + depth
        b = tl.load(
            w_ptr + w_at[None, :] + k[:, None], mask=channel_there[None, :] & k_there[:, None], other=0.0
        )
        sums = tl.dot(a, b, sums)
    y_at = pixel[:, None] * K + group * K_per_group + channel[None, :]
    tl.store(
        y_ptr + y_at, sums.to(y_ptr.dtype.element_ty), mask=pixel_there[:, None] & channel_there[None, :]
    )
