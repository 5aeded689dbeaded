"""Depthwise convolution in Triton, 2D: groups of one channel. Direct, without matrix instructions.

    depthwise        forward
    depthwise_data   backward data

A program computes BLOCK_H x BLOCK_W pixels of BLOCK_C channels. It reads an input once from memory, and again
from the cache for the other taps. FILTER: height and width of the filter, of which a row is unrolled; 0: any
filter. Offsets are 32-bit.
"""

import triton
import triton.language as tl
from grouped_conv import divided, near

from tile_oracle.triton import GroupedConvView, cdiv, grouped_conv

# BLOCK_H, BLOCK_W, BLOCK_C, num_warps
TILES = ((1, 16, 64, 4), (4, 8, 64, 4), (8, 8, 32, 4), (2, 8, 128, 4), (4, 16, 32, 4), (2, 4, 64, 2))
FILTERS = (0, 3, 5, 7)


def _configs(p: GroupedConvView):
    for filter_ in FILTERS:
        for h, w, c, warps in TILES[:3] if filter_ == 0 else TILES:
            yield {"BLOCK_H": h, "BLOCK_W": w, "BLOCK_C": c, "FILTER": filter_, "num_warps": warps}


def _one_channel(p: GroupedConvView, meta):
    yield from near(p, meta)
    yield ((p.C_per_group == 1) & (p.K_per_group == 1), "a group has more than one channel")
    filter_ = meta["FILTER"]
    if filter_:
        yield ((filter_ == p.Y) & (filter_ == p.X), f"the filter is not {filter_} x {filter_}")
    else:
        unrolled = [(one == p.Y) & (one == p.X) for one in FILTERS[1:]]
        for one, size in zip(unrolled, FILTERS[1:], strict=True):
            yield (one == 0, f"kernels with FILTER={size} can do it")


def _tiles(meta, height, width):
    tiles = cdiv(height, meta["BLOCK_H"]) * cdiv(width, meta["BLOCK_W"]) * meta["N"]
    return tiles, cdiv(meta["C"], meta["BLOCK_C"])


def _arguments(p: GroupedConvView):
    return p.usual_arguments()


@triton.jit
def places(extent_h, extent_w, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr):
    """(image, rows, columns, whether they are there) of a program's pixels."""
    tiles_w = tl.cdiv(extent_w, BLOCK_W)
    tiles_h = tl.cdiv(extent_h, BLOCK_H)
    image, _, row, column = divided(tl.program_id(0), 1, tiles_h, tiles_w, 2)
    at = tl.arange(0, BLOCK_H * BLOCK_W)
    h, w = row * BLOCK_H + at // BLOCK_W, column * BLOCK_W + at % BLOCK_W
    return image, h, w, (h < extent_h) & (w < extent_w)


@triton.jit
def with_tap(sums, x_ptr, w_ptr, image, h, w, there, Hi, Wi, C, channel, tap, taps):
    """Adds the products of one tap."""
    seen = there & (h >= 0) & (h < Hi) & (w >= 0) & (w < Wi)
    at = ((image * Hi + h) * Wi + w)[:, None] * C + channel[None, :]
    channel_there = channel < C
    x = tl.load(x_ptr + at, mask=seen[:, None] & channel_there[None, :], other=0.0)
    weight = tl.load(w_ptr + channel * taps + tap, mask=channel_there, other=0.0)
    return sums + x.to(tl.float32) * weight.to(tl.float32)[None, :]


@grouped_conv(
    directions=("forward",),
    ndims=(2,),
    grid=lambda meta: _tiles(meta, meta["Ho"], meta["Wo"]),
    configs=lambda p: list(_configs(p)),
    arguments=_arguments,
    constraints=_one_channel,
    aligned=("C",),
)
@triton.jit
def depthwise(
    x_ptr,
    w_ptr,
    y_ptr,
    N,
    C,
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
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_C: tl.constexpr,
    FILTER: tl.constexpr,
):
    """One program a tile of output pixels and channels."""
    image, h, w, there = places(Ho, Wo, BLOCK_H, BLOCK_W)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    top, left = h * stride_h - pad_h, w * stride_w - pad_w
    sums = tl.zeros((BLOCK_H * BLOCK_W, BLOCK_C), dtype=tl.float32)
    if FILTER > 0:
        for y in range(FILTER):
            for x in tl.static_range(FILTER):
                sums = with_tap(
                    sums, x_ptr, w_ptr, image, top + y * dilation_h, left + x * dilation_w, there,
                    Hi, Wi, C, channel, y * FILTER + x, FILTER * FILTER,
                )  # fmt: skip
    else:
        for tap in range(0, Y * X):
            sums = with_tap(
                sums, x_ptr, w_ptr, image, top + tap // X * dilation_h, left + tap % X * dilation_w, there,
                Hi, Wi, C, channel, tap, Y * X,
            )  # fmt: skip
    at = ((image * Ho + h) * Wo + w)[:, None] * C + channel[None, :]
    tl.store(y_ptr + at, sums.to(y_ptr.dtype.element_ty), mask=there[:, None] & (channel < C)[None, :])


@grouped_conv(
    directions=("bwd_data",),
    ndims=(2,),
    grid=lambda meta: _tiles(meta, meta["Hi"], meta["Wi"]),
    configs=lambda p: list(_configs(p)),
    arguments=_arguments,
    constraints=_one_channel,
    aligned=("C",),
)
@triton.jit
def depthwise_data(
    dy_ptr,
    w_ptr,
    dx_ptr,
    N,
    C,
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
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_C: tl.constexpr,
    FILTER: tl.constexpr,
):
    """One program a tile of input pixels and channels. Taps that meet no output add nothing."""
    image, h, w, there = places(Hi, Wi, BLOCK_H, BLOCK_W)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    top, left = h + pad_h, w + pad_w
    sums = tl.zeros((BLOCK_H * BLOCK_W, BLOCK_C), dtype=tl.float32)
    if FILTER > 0:
        for y in range(FILTER):
            for x in tl.static_range(FILTER):
                below, beside = top - y * dilation_h, left - x * dilation_w
                meets = there & (below % stride_h == 0) & (beside % stride_w == 0)
                sums = with_tap(
                    sums, dy_ptr, w_ptr, image, below // stride_h, beside // stride_w, meets,
                    Ho, Wo, C, channel, y * FILTER + x, FILTER * FILTER,
                )  # fmt: skip
    else:
        for tap in range(0, Y * X):
            below, beside = top - tap // X * dilation_h, left - tap % X * dilation_w
            meets = there & (below % stride_h == 0) & (beside % stride_w == 0)
            sums = with_tap(
                sums, dy_ptr, w_ptr, image, below // stride_h, beside // stride_w, meets,
                Ho, Wo, C, channel, tap, Y * X,
            )  # fmt: skip
    at = ((image * Hi + h) * Wi + w)[:, None] * C + channel[None, :]
    tl.store(dx_ptr + at, sums.to(dx_ptr.dtype.element_ty), mask=there[:, None] & (channel < C)[None, :])
