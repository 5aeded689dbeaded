"""Backward weight of depthwise convolutions in Triton, 2D and 3D: direct, without matrix instructions.

    depthwise_weight      square filters of 3 to 11, stride 1 or 2, or stride 1 with a dilation (sm_90)
    depthwise_weight_any  any other filter, stride and dilation; on AMD's GPUs all

A program adds up, in fp32 registers, the products of BLOCK_C channels over part of the output pixels, for
TAP_ROWS rows of the filter (or TAPS taps) at one depth. It does BLOCK_P blocks of STEP_H x STEP_W pixels at
once: dY and each input of a block are read once, for all taps that meet them. A second launch adds up the
parts in their order and rounds. There are as many parts as make PER_UNIT programs for each compute unit.
Channels are multiples of EVEN, for wide loads. Offsets are 32-bit.
"""

import triton
import triton.language as tl
from grouped_conv import AMD, even_part, near

from tile_oracle.triton import GroupedConvView, cdiv, grouped_conv, launch, maximum, minimum

ADD_PARTS, ADD_VALUES = 32, 32

# BLOCK_P, BLOCK_C, EVEN, STEP_H, STEP_W, TAP_ROWS, PER_UNIT, num_warps: on Hopper EVEN channels a thread
STRIDE_1 = {
    3: (
        *((4, 64, 2, 4, 4, 3, 6, 4), (4, 64, 2, 4, 4, 3, 24, 4), (4, 128, 4, 2, 4, 3, 4, 4)),
        *((8, 32, 2, 4, 4, 3, 12, 4), (4, 32, 1, 4, 4, 3, 12, 4)),
    ),
    5: ((4, 64, 2, 2, 4, 5, 4, 4), (8, 32, 2, 2, 4, 5, 12, 4), (4, 32, 1, 2, 4, 5, 12, 4)),
    7: (
        *((4, 64, 2, 2, 4, 7, 4, 4), (4, 64, 2, 4, 4, 4, 12, 4)),
        *((8, 32, 2, 2, 4, 7, 12, 4), (4, 32, 1, 2, 4, 7, 12, 4)),
    ),
    9: ((4, 64, 2, 2, 4, 3, 12, 4), (4, 32, 1, 2, 4, 5, 12, 4)),
    11: ((4, 64, 2, 2, 4, 3, 12, 4), (4, 32, 1, 2, 4, 4, 12, 4)),
}
STRIDE_2 = {
    3: (
        *((4, 64, 2, 2, 4, 3, 6, 4), (4, 64, 2, 2, 4, 3, 16, 4)),
        *((8, 32, 2, 2, 4, 3, 12, 4), (4, 32, 1, 2, 4, 3, 12, 4)),
    ),
    5: ((4, 64, 2, 2, 4, 5, 12, 4), (4, 32, 1, 2, 4, 5, 12, 4)),
    7: ((4, 64, 2, 2, 4, 4, 12, 4), (4, 32, 1, 2, 4, 7, 12, 4)),
}
DILATED = {
    3: ((4, 64, 2, 2, 4, 3, 12, 4), (4, 32, 1, 2, 4, 3, 12, 4)),
    5: ((4, 64, 2, 2, 4, 5, 12, 4), (4, 32, 1, 2, 4, 5, 12, 4)),
    7: ((4, 64, 2, 4, 4, 4, 12, 4), (4, 32, 1, 2, 4, 7, 12, 4)),
}
WAYS = ((1, False, STRIDE_1), (2, False, STRIDE_2), (1, True, DILATED))
# BLOCK_P, BLOCK_C, EVEN, TAPS, PER_UNIT, num_warps
ANY = ((8, 64, 4, 8, 8, 4), (8, 64, 4, 1, 16, 4), (4, 64, 2, 8, 8, 4), (4, 32, 1, 8, 8, 4))
NAMES = ("BLOCK_P", "BLOCK_C", "EVEN", "STEP_H", "STEP_W", "TAP_ROWS", "PER_UNIT", "num_warps")


def _wide(p: GroupedConvView, one):
    """A wave of AMD's GPUs has twice the threads."""
    return one | {"BLOCK_P": one["BLOCK_P"] * 2} if p.arch in AMD else one


def _ways(p: GroupedConvView):
    """(stride, whether dilated, filter, tiles). In 3D only filters of 3, which nearly all are. None for AMD:
    its compiler takes minutes and more than 10 GB for the unrolled loops."""
    if p.arch in AMD:
        return
    for stride, dilated, ways in WAYS:
        for filter_, tiles in ways.items():
            if p.ndim == 2 or filter_ == 3:
                yield stride, dilated, filter_, tiles


def _configs(p: GroupedConvView):
    for stride, dilated, filter_, tiles in _ways(p):
        for tile in tiles:
            one = dict(zip(NAMES, tile, strict=True))
            yield one | {"FILTER": filter_, "STRIDE": stride, "DILATED": dilated}


def _any_configs(p: GroupedConvView):
    names = ("BLOCK_P", "BLOCK_C", "EVEN", "TAPS", "PER_UNIT", "num_warps")
    for tile in ANY:
        yield _wide(p, dict(zip(names, tile, strict=True)))


def _depthwise(p: GroupedConvView, meta):
    yield from near(p, meta)
    yield ((p.C_per_group == 1) & (p.K_per_group == 1), "a group has more than one channel")
    yield (p.C % meta["EVEN"] == 0, f"C is not a multiple of {meta['EVEN']}")


def _strides(p: GroupedConvView, stride):
    return (p.stride_h == stride) & (p.stride_w == stride)


def _undilated(p: GroupedConvView):
    return (p.dilation_h == 1) & (p.dilation_w == 1)


def _fits(p: GroupedConvView, meta):
    yield from _depthwise(p, meta)
    filter_, stride = meta["FILTER"], meta["STRIDE"]
    yield ((filter_ == p.Y) & (filter_ == p.X), f"the filter is not {filter_} x {filter_}")
    yield (_strides(p, stride), f"a stride is not {stride}")
    if meta["DILATED"]:
        yield (_undilated(p) == 0, "kernels without DILATED can do it")
    else:
        yield (_undilated(p), "the filter is dilated")


def _no_other(p: GroupedConvView, meta):
    yield from _depthwise(p, meta)
    for stride, dilated, filter_, _ in _ways(p):
        fits = (filter_ == p.Y) & (filter_ == p.X) & _strides(p, stride)
        fits = fits & (_undilated(p) == (0 if dilated else 1))
        yield (fits == 0, f"depthwise_weight with FILTER={filter_} can do it")


# ---- how the work is shared ----------------------------------------------------------------------
# The same formulas twice: as expressions for the grid, and in Triton.


def _blocks(meta):
    """Blocks of pixels."""
    if "FILTER" not in meta:
        return meta["N"] * meta["Do"] * meta["Ho"] * meta["Wo"]
    found = meta["N"] * meta["Do"]
    for axis in "hw":
        dilation = meta[f"dilation_{axis}"] if meta["DILATED"] else 1
        found = found * cdiv(meta[f"{axis.upper()}o"], meta[f"STEP_{axis.upper()}"] * dilation) * dilation
    return found


def _groups(meta):
    """Groups of taps, each of which has programs of its own."""
    if "FILTER" not in meta:
        return cdiv(meta["Z"] * meta["Y"] * meta["X"], meta["TAPS"])
    return meta["Z"] * cdiv(meta["FILTER"], meta["TAP_ROWS"])


def _parts(meta):
    programs = cdiv(meta["C"], meta["BLOCK_C"]) * _groups(meta)
    wanted = cdiv(meta["compute_units"] * meta["PER_UNIT"], programs)
    return maximum(1, minimum(wanted, cdiv(_blocks(meta), meta["BLOCK_P"])))


def _grid(meta):
    return cdiv(meta["C"], meta["BLOCK_C"]), _groups(meta), _parts(meta)


def _arguments(p: GroupedConvView):
    more = {"parts_ptr": p.workspace("fp32"), "compute_units": p.compute_units}
    return p.usual_arguments() | more


def _workspace_bytes(p: GroupedConvView, meta):
    return p.C * p.Z * p.Y * p.X * 4 * _parts(meta)


@triton.jit
def parts_of(blocks, programs, compute_units, PER_UNIT: tl.constexpr, BLOCK_P: tl.constexpr):
    """The number of parts."""
    wanted = tl.cdiv(compute_units * PER_UNIT, programs)
    return max(1, min(wanted, tl.cdiv(blocks, BLOCK_P)))


@triton.jit
def blocks_along(extent, dilation, STEP: tl.constexpr, DILATED: tl.constexpr):
    """Blocks of STEP pixels along an axis, which are a dilation apart, so that they share inputs."""
    if DILATED:
        return tl.cdiv(extent, STEP * dilation) * dilation
    else:
        return tl.cdiv(extent, STEP)


@triton.jit
def first_of(block, dilation, STEP: tl.constexpr, DILATED: tl.constexpr):
    """The first pixel of a block."""
    if DILATED:
        return block // dilation * (STEP * dilation) + block % dilation
    else:
        return block * STEP


@triton.jit
def share_of(tiles):
    """(first, end) of this part's tiles."""
    share = tl.cdiv(tiles, tl.num_programs(2))
    first = tl.program_id(2) * share
    return first, min(tiles, first + share)


@triton.jit
def with_one(values, at: tl.constexpr, value):
    """The tuple with another value at a place."""
    return values[:at] + (value,) + values[at + 1 :]  # noqa: RUF005


@triton.jit
def add_up(parts_ptr, dw_ptr, C, taps, parts, ADD_PARTS: tl.constexpr, ADD_VALUES: tl.constexpr):
    """Adds up the parts of each weight. They lie by part, tap and channel, the weights by channel and tap."""
    values = C * taps
    at = tl.program_id(0) * ADD_VALUES + tl.arange(0, ADD_VALUES)
    sums = tl.zeros((ADD_PARTS, ADD_VALUES), dtype=tl.float32)
    for first in range(0, parts, ADD_PARTS):
        part = first + tl.arange(0, ADD_PARTS)
        there = (part < parts)[:, None] & (at < values)[None, :]
        sums += tl.load(parts_ptr + part.to(tl.int64)[:, None] * values + at[None, :], mask=there, other=0.0)
    total = tl.sum(sums, axis=0)
    tl.store(dw_ptr + at % C * taps + at // C, total.to(dw_ptr.dtype.element_ty), mask=at < values)


def _add_arguments(p: GroupedConvView):
    return _arguments(p) | {"ADD_PARTS": ADD_PARTS, "ADD_VALUES": ADD_VALUES}


def _add_grid(meta):
    return (cdiv(meta["C"] * meta["Z"] * meta["Y"] * meta["X"], ADD_VALUES),)


# ---- square filters ------------------------------------------------------------------------------


@triton.jit
def add_weight_parts(
    parts_ptr,
    dw_ptr,
    N,
    C,
    Z,
    Y,
    X,
    Do,
    Ho,
    Wo,
    dilation_h,
    dilation_w,
    compute_units,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STEP_H: tl.constexpr,
    STEP_W: tl.constexpr,
    FILTER: tl.constexpr,
    TAP_ROWS: tl.constexpr,
    DILATED: tl.constexpr,
    PER_UNIT: tl.constexpr,
    ADD_PARTS: tl.constexpr,
    ADD_VALUES: tl.constexpr,
):
    """The second launch of depthwise_weight."""
    blocks = blocks_along(Ho, dilation_h, STEP_H, DILATED) * blocks_along(Wo, dilation_w, STEP_W, DILATED)
    programs = tl.cdiv(C, BLOCK_C) * Z * tl.cdiv(FILTER, TAP_ROWS)
    parts = parts_of(N * Do * blocks, programs, compute_units, PER_UNIT, BLOCK_P)
    add_up(parts_ptr, dw_ptr, C, Z * Y * X, parts, ADD_PARTS, ADD_VALUES)


@grouped_conv(
    directions=("bwd_weight",),
    ndims=(2, 3),
    grid=_grid,
    archs=("sm_90",),
    configs=lambda p: list(_configs(p)),
    arguments=lambda p: _arguments(p) | {"NDIM": p.ndim},
    constraints=_fits,
    aligned=(),
    workspace_bytes=_workspace_bytes,
    after=[launch(add_weight_parts, arguments=_add_arguments, grid=_add_grid)],
)
@triton.jit
def depthwise_weight(
    x_ptr,
    dy_ptr,
    parts_ptr,
    N,
    C,
    Di,
    Hi,
    Wi,
    Z,
    Do,
    Ho,
    Wo,
    stride_d,
    pad_d,
    pad_h,
    pad_w,
    dilation_d,
    dilation_h,
    dilation_w,
    compute_units,
    NDIM: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STEP_H: tl.constexpr,
    STEP_W: tl.constexpr,
    FILTER: tl.constexpr,
    TAP_ROWS: tl.constexpr,
    STRIDE: tl.constexpr,
    DILATED: tl.constexpr,
    EVEN: tl.constexpr,
    PER_UNIT: tl.constexpr,
):
    """One program some rows of taps of some channels, over part of the pixels."""
    C = even_part(C, EVEN)
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    channel_there = (channel < C)[None, :]
    groups: tl.constexpr = (FILTER + TAP_ROWS - 1) // TAP_ROWS
    z, row = tl.program_id(1) // groups, tl.program_id(1) % groups * TAP_ROWS
    down, right = 1, 1
    if DILATED:
        down, right = dilation_h, dilation_w
    high = blocks_along(Ho, dilation_h, STEP_H, DILATED)
    wide = blocks_along(Wo, dilation_w, STEP_W, DILATED)
    blocks = N * Do * high * wide
    sums = ()
    for _ in tl.static_range(TAP_ROWS * FILTER):
        sums = sums + (tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32),)  # noqa: RUF005
    begin, end = share_of(tl.cdiv(blocks, BLOCK_P))
    for tile in range(begin, end):
        block = tile * BLOCK_P + tl.arange(0, BLOCK_P)
        image = block // wide // high
        h = first_of(block // wide % high, dilation_h, STEP_H, DILATED)
        w = first_of(block % wide, dilation_w, STEP_W, DILATED)
        there = block < blocks
        # dY of the block. Moved pointers need fewer registers than an offset for each pixel.
        from_row = dy_ptr + (((image * Ho + h) * Wo + w)[:, None] * C + channel[None, :])
        dy = ()
        for i in tl.static_range(STEP_H):
            row_there = there & (h + i * down < Ho)
            from_ = from_row
            for j in tl.static_range(STEP_W):
                seen = row_there & (w + j * right < Wo)
                one = tl.load(from_, mask=seen[:, None] & channel_there, other=0.0)
                dy = dy + (one.to(tl.float32),)  # noqa: RUF005
                from_ += right * C
            from_row += down * Wo * C
        # Rows of inputs, each with the rows of taps and of pixels that meet it.
        if NDIM == 3:
            d = image % Do * stride_d - pad_d + z * dilation_d
            there = there & (d >= 0) & (d < Di)
            image = image // Do * Di + d
        h = h * STRIDE - pad_h + row * down
        w = w * STRIDE - pad_w
        from_row = x_ptr + (((image * Hi + h) * Wi + w)[:, None] * C + channel[None, :])
        for r in tl.static_range((STEP_H - 1) * STRIDE + TAP_ROWS):
            row_there = there & (h + r * down >= 0) & (h + r * down < Hi)
            from_ = from_row
            xs = ()
            for c in tl.static_range((STEP_W - 1) * STRIDE + FILTER):
                seen = row_there & (w + c * right >= 0) & (w + c * right < Wi)
                one = tl.load(from_, mask=seen[:, None] & channel_there, other=0.0)
                xs = xs + (one.to(tl.float32),)  # noqa: RUF005
                from_ += right * C
            from_row += down * Wi * C
            for i in tl.static_range(STEP_H):
                if r >= i * STRIDE and r < i * STRIDE + TAP_ROWS:
                    for x in tl.static_range(FILTER):
                        total = sums[(r - i * STRIDE) * FILTER + x]
                        for j in tl.static_range(STEP_W):
                            total += dy[i * STEP_W + j] * xs[j * STRIDE + x]
                        sums = with_one(sums, (r - i * STRIDE) * FILTER + x, total)
    taps = Z * FILTER * FILTER
    to = parts_ptr + (tl.program_id(2).to(tl.int64) * taps + (z * FILTER + row) * FILTER) * C + channel
    for y in tl.static_range(TAP_ROWS):
        for x in tl.static_range(FILTER):
            total = tl.sum(sums[y * FILTER + x], axis=0)
            tl.store(to + (y * FILTER + x) * C, total, mask=channel < tl.where(row + y < FILTER, C, 0))


# ---- any filter ----------------------------------------------------------------------------------


@triton.jit
def add_any_parts(
    parts_ptr,
    dw_ptr,
    N,
    C,
    Z,
    Y,
    X,
    Do,
    Ho,
    Wo,
    compute_units,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    TAPS: tl.constexpr,
    PER_UNIT: tl.constexpr,
    ADD_PARTS: tl.constexpr,
    ADD_VALUES: tl.constexpr,
):
    """The second launch of depthwise_weight_any."""
    taps = Z * Y * X
    programs = tl.cdiv(C, BLOCK_C) * tl.cdiv(taps, TAPS)
    parts = parts_of(N * Do * Ho * Wo, programs, compute_units, PER_UNIT, BLOCK_P)
    add_up(parts_ptr, dw_ptr, C, taps, parts, ADD_PARTS, ADD_VALUES)


@grouped_conv(
    directions=("bwd_weight",),
    ndims=(2, 3),
    grid=_grid,
    configs=lambda p: list(_any_configs(p)),
    arguments=lambda p: _arguments(p) | {"NDIM": p.ndim},
    constraints=_no_other,
    aligned=(),
    workspace_bytes=_workspace_bytes,
    after=[launch(add_any_parts, arguments=_add_arguments, grid=_add_grid)],
)
@triton.jit
def depthwise_weight_any(
    x_ptr,
    dy_ptr,
    parts_ptr,
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
    compute_units,
    NDIM: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    TAPS: tl.constexpr,
    EVEN: tl.constexpr,
    PER_UNIT: tl.constexpr,
):
    """One program some taps of some channels, over part of the pixels. Sums of taps beyond the last are not
    stored."""
    C = even_part(C, EVEN)
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    channel_there = (channel < C)[None, :]
    first_tap, taps = tl.program_id(1) * TAPS, Z * Y * X
    pixels = N * Do * Ho * Wo
    sums = ()
    for _ in tl.static_range(TAPS):
        sums = sums + (tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32),)  # noqa: RUF005
    begin, end = share_of(tl.cdiv(pixels, BLOCK_P))
    for tile in range(begin, end):
        pixel = tile * BLOCK_P + tl.arange(0, BLOCK_P)
        there = pixel < pixels
        dy_at = pixel[:, None] * C + channel[None, :]
        dy = tl.load(dy_ptr + dy_at, mask=there[:, None] & channel_there, other=0.0).to(tl.float32)
        w, h, image = pixel % Wo * stride_w - pad_w, pixel // Wo % Ho * stride_h - pad_h, pixel // Wo // Ho
        d = image % Do * stride_d - pad_d
        if NDIM == 3:
            image = image // Do
        for t in tl.static_range(TAPS):
            tap = first_tap + t
            at_h, at_w = h + tap // X % Y * dilation_h, w + tap % X * dilation_w
            seen = there & (at_h >= 0) & (at_h < Hi) & (at_w >= 0) & (at_w < Wi)
            plane = image
            if NDIM == 3:
                at_d = d + tap // (X * Y) * dilation_d
                seen = seen & (at_d >= 0) & (at_d < Di)
                plane = image * Di + at_d
            x_at = ((plane * Hi + at_h) * Wi + at_w)[:, None] * C + channel[None, :]
            x = tl.load(x_ptr + x_at, mask=seen[:, None] & channel_there, other=0.0)
            sums = with_one(sums, t, sums[t] + dy * x.to(tl.float32))
    to = parts_ptr + (tl.program_id(2).to(tl.int64) * taps + first_tap) * C + channel
    for t in tl.static_range(TAPS):
        total = tl.sum(sums[t], axis=0)
        tl.store(to + t * C, total, mask=channel < tl.where(first_tap + t < taps, C, 0))
