"""Depthwise convolution in Triton, 3D: groups of one channel. Direct, without matrix instructions.

    depthwise_volume       forward
    depthwise_volume_data  backward data

As depthwise.py in 2D: a program computes BLOCK_H x BLOCK_W pixels of BLOCK_C channels at one depth. FILTER:
height and width of the filter, of which a row is unrolled; 0: any filter. Offsets are 32-bit.
"""

import triton
import triton.language as tl
from depthwise import places, with_tap
from grouped_conv import near

from tile_oracle.triton import GroupedConvView, cdiv, grouped_conv

# BLOCK_H, BLOCK_W, BLOCK_C, num_warps
TILES = ((1, 16, 64, 4), (4, 8, 64, 4), (8, 8, 32, 4), (4, 16, 32, 4), (2, 4, 64, 2))
UNROLLED = 3


def _configs(p: GroupedConvView):
    for filter_ in (0, UNROLLED):
        for h, w, c, warps in TILES[:3] if filter_ == 0 else TILES:
            yield {"BLOCK_H": h, "BLOCK_W": w, "BLOCK_C": c, "FILTER": filter_, "num_warps": warps}


def _one_channel(p: GroupedConvView, meta):
    yield from near(p, meta)
    yield ((p.C_per_group == 1) & (p.K_per_group == 1), "a group has more than one channel")
    unrolled = (p.Y == UNROLLED) & (p.X == UNROLLED)
    if meta["FILTER"]:
        yield (unrolled, f"a depth of the filter is not {UNROLLED} x {UNROLLED}")
    else:
        yield (unrolled == 0, f"kernels with FILTER={UNROLLED} can do it")


def _tiles(meta, depth, height, width):
    tiles = cdiv(height, meta["BLOCK_H"]) * cdiv(width, meta["BLOCK_W"]) * depth * meta["N"]
    return tiles, cdiv(meta["C"], meta["BLOCK_C"])


@grouped_conv(
    directions=("forward",),
    ndims=(3,),
    grid=lambda meta: _tiles(meta, meta["Do"], meta["Ho"], meta["Wo"]),
    configs=lambda p: list(_configs(p)),
    constraints=_one_channel,
    aligned=("C",),
)
@triton.jit
def depthwise_volume(
    x_ptr,
    w_ptr,
    y_ptr,
    N,
    C,
    Di,
    Hi,
    Wi,
    Z,
    Y,
    X,
    Do,
    Ho,
    Wo,
    stride_d,
    stride_h,
    stride_w,
    pad_d,
    pad_h,
    pad_w,
    dilation_d,
    dilation_h,
    dilation_w,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_C: tl.constexpr,
    FILTER: tl.constexpr,
):
    """One program a tile of output pixels and channels. A plane is an image at one depth."""
    plane, h, w, there = places(Ho, Wo, BLOCK_H, BLOCK_W)
    image, front = plane // Do, plane % Do * stride_d - pad_d
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    top, left = h * stride_h - pad_h, w * stride_w - pad_w
    sums = tl.zeros((BLOCK_H * BLOCK_W, BLOCK_C), dtype=tl.float32)
    if FILTER > 0:
        for row in range(Z * FILTER):
            d = front + row // FILTER * dilation_d
            at_h = tl.where((d >= 0) & (d < Di), top + row % FILTER * dilation_h, -1)
            for x in tl.static_range(FILTER):
                sums = with_tap(
                    sums, x_ptr, w_ptr, image * Di + d, at_h, left + x * dilation_w, there,
                    Hi, Wi, C, channel, row * FILTER + x, Z * FILTER * FILTER,
                )  # fmt: skip
    else:
        for tap in range(0, Z * Y * X):
            d = front + tap // (Y * X) * dilation_d
            at_h = tl.where((d >= 0) & (d < Di), top + tap // X % Y * dilation_h, -1)
            sums = with_tap(
                sums, x_ptr, w_ptr, image * Di + d, at_h, left + tap % X * dilation_w, there,
                Hi, Wi, C, channel, tap, Z * Y * X,
            )  # fmt: skip
    at = ((plane * Ho + h) * Wo + w)[:, None] * C + channel[None, :]
    tl.store(y_ptr + at, sums.to(y_ptr.dtype.element_ty), mask=there[:, None] & (channel < C)[None, :])


@grouped_conv(
    directions=("bwd_data",),
    ndims=(3,),
    grid=lambda meta: _tiles(meta, meta["Di"], meta["Hi"], meta["Wi"]),
    configs=lambda p: list(_configs(p)),
    constraints=_one_channel,
    aligned=("C",),
)
@triton.jit
def depthwise_volume_data(
    dy_ptr,
    w_ptr,
    dx_ptr,
    N,
    C,
    Di,
    Hi,
    Wi,
    Z,
    Y,
    X,
    Do,
    Ho,
    Wo,
    stride_d,
    stride_h,
    stride_w,
    pad_d,
    pad_h,
    pad_w,
    dilation_d,
    dilation_h,
    dilation_w,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_C: tl.constexpr,
    FILTER: tl.constexpr,
):
    """One program a tile of input pixels and channels. Taps at a depth that meets no output are skipped."""
    plane, h, w, there = places(Hi, Wi, BLOCK_H, BLOCK_W)
    image, front = plane // Di, plane % Di + pad_d
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    top, left = h + pad_h, w + pad_w
    sums = tl.zeros((BLOCK_H * BLOCK_W, BLOCK_C), dtype=tl.float32)
    for z in range(0, Z):
        behind = front - z * dilation_d
        if (behind >= 0) & (behind % stride_d == 0) & (behind < Do * stride_d):
            out = image * Do + behind // stride_d
            if FILTER > 0:
                for y in range(FILTER):
                    for x in tl.static_range(FILTER):
                        below, beside = top - y * dilation_h, left - x * dilation_w
                        meets = there & (below % stride_h == 0) & (beside % stride_w == 0)
                        sums = with_tap(
                            sums, dy_ptr, w_ptr, out, below // stride_h, beside // stride_w, meets,
                            Ho, Wo, C, channel, (z * FILTER + y) * FILTER + x, Z * FILTER * FILTER,
                        )  # fmt: skip
            else:
                for tap in range(0, Y * X):
                    below, beside = top - tap // X * dilation_h, left - tap % X * dilation_w
                    meets = there & (below % stride_h == 0) & (beside % stride_w == 0)
                    sums = with_tap(
                        sums, dy_ptr, w_ptr, out, below // stride_h, beside // stride_w, meets,
                        Ho, Wo, C, channel, z * Y * X + tap, Z * Y * X,
                    )  # fmt: skip
    at = ((plane * Hi + h) * Wi + w)[:, None] * C + channel[None, :]
    tl.store(dx_ptr + at, sums.to(dx_ptr.dtype.element_ty), mask=there[:, None] & (channel < C)[None, :])
