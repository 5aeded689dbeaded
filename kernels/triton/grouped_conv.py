"""Grouped convolution in Triton, 2D and 3D, as an implicit matrix product with fp32 sums.

    implicit         forward: rows are output pixels, columns the output channels of a group, and the depth is
                     filter taps times the input channels of a group
    implicit_data    backward data: rows are input pixels of one phase of the strides, so that only taps that
                     meet an output are done; the depth is these taps times the output channels of a group
    implicit_weight  backward weight: rows are output channels of a group, columns taps times input channels,
                     and the depth is output pixels, in SPLIT_K parts whose fp32 sums a second launch adds up

The second extent of the grid is the group. Offsets are 32-bit. Channels of a group are multiples of EVEN, for
wide loads. FLAT kernels run over taps and channels as one axis, for few channels.
"""

import triton
import triton.language as tl
from gemm import SUM_BLOCK, add_parts

from tile_oracle.triton import GroupedConvView, cdiv, grouped_conv, launch

AMD = ("gfx950", "gfx942", "gfx90a")
OLDER_CDNA_LDS = 64 * 1024
MOST_ELEMENTS = 2**31

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
# For channels that are multiples of 4, and for any. BLOCK_M, BLOCK_N, BLOCK_K, num_warps
LESS_EVEN = ((128, 64, 64, 4), (64, 64, 64, 4), (64, 32, 32, 4), (128, 16, 32, 4))
ODD = ((64, 64, 32, 4), (64, 32, 32, 4), (64, 16, 32, 4), (32, 32, 32, 4))
FLAT = ((128, 64, 64, 8), (64, 64, 32, 4), (128, 32, 32, 4), (64, 16, 32, 4))
# Backward weight. BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
WEIGHT = (
    *((128, 128, 64, 8, 3), (128, 64, 64, 4, 3), (64, 128, 64, 4, 3), (64, 64, 64, 4, 4)),
    *((64, 32, 64, 4, 4), (32, 64, 64, 4, 4)),
)
WEIGHT_ODD = ((64, 64, 32, 4, 3), (64, 32, 32, 4, 3), (32, 64, 32, 4, 3))
WEIGHT_FLAT = ((64, 64, 32, 4, 3), (16, 64, 32, 4, 3))
SPLITS = (4, 32)
FEW_CHANNELS = 48


def _config(p: GroupedConvView, m, n, k, warps, stages, **more):
    """A configuration, or nothing where it does not fit into LDS. AMD's use 16-wide matrix instructions."""
    amd = p.arch in AMD
    if amd and p.arch != "gfx950" and (m + n) * k * 2 > OLDER_CDNA_LDS:
        return
    one = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps}
    one |= {"num_stages": min(stages, 2) if amd else stages, **more}
    yield one | ({"matrix_instr_nonkdim": 16} if amd else {})


def _configs(p: GroupedConvView, *, flat: bool):
    for m, n, k, warps, stages in CDNA if p.arch in AMD else HOPPER:
        if p.direction == "bwd_data" and p.arch not in AMD and n == 256:
            continue  # it spills
        yield from _config(p, m, n, k, warps, stages, GROUP_M=8, EVEN=8, FLAT=False)
    for even, tiles in ((4, LESS_EVEN), (1, ODD)):
        for m, n, k, warps in tiles:
            yield from _config(p, m, n, k, warps, 4, GROUP_M=8, EVEN=even, FLAT=False)
    if flat:
        for m, n, k, warps in FLAT:
            yield from _config(p, m, n, k, warps, 3, GROUP_M=8, EVEN=1, FLAT=True)


def _weight_configs(p: GroupedConvView):
    for even, splits in ((8, SPLITS), (1, SPLITS[-1:])):
        for m, n, k, warps, stages in WEIGHT if even == 8 else WEIGHT_ODD:
            for split in splits:
                yield from _config(p, m, n, k, warps, stages, EVEN=even, FLAT=False, SPLIT_K=split)
    for m, n, k, warps, stages in WEIGHT_FLAT:
        yield from _config(p, m, n, k, warps, stages, EVEN=1, FLAT=True, SPLIT_K=SPLITS[-1])


def near(p: GroupedConvView, meta):
    """Offsets are 32-bit."""
    why = "an array has 2^31 elements or more"
    yield (p.N * p.Di * p.Hi * p.Wi * p.C < MOST_ELEMENTS, why)
    yield (p.N * p.Do * p.Ho * p.Wo * p.K < MOST_ELEMENTS, why)
    yield (p.K * p.Z * p.Y * p.X * p.C_per_group < MOST_ELEMENTS, why)


def _even(p: GroupedConvView, meta):
    """Each kernel is for the problems that no more even one can do, and FLAT ones for few channels."""
    yield from near(p, meta)
    even, read = meta["EVEN"], {"forward": ("C",), "bwd_data": ("C", "K"), "bwd_weight": ("C", "K")}
    for axis in read[p.direction] if even > 1 else ():
        channels = p.C_per_group if axis == "C" else p.K_per_group
        yield (channels % even == 0, f"{axis}_per_group is not a multiple of {even}")
    if even < 8 and not meta["FLAT"]:
        odd = p.C_per_group % 8 != 0
        if len(read[p.direction]) > 1:
            odd = odd | (p.K_per_group % 8 != 0)
        yield (odd, "kernels with EVEN=8 can do it")
    if meta["FLAT"]:
        yield (p.C_per_group <= FEW_CHANNELS, f"C_per_group is more than {FEW_CHANNELS}")


@triton.jit
def place_in_group(tile, rows, columns, GROUP_M: tl.constexpr):
    """(row, column) of a tile, in groups of GROUP_M rows."""
    first = tile // (GROUP_M * columns) * GROUP_M
    height = min(rows - first, GROUP_M)
    within = tile % (GROUP_M * columns)
    return first + within % height, within // height


@triton.jit
def divided(at, D, H, W, NDIM: tl.constexpr):
    """(image, depth, height, width) of places in an array of images."""
    w = at % W
    h = at // W
    if NDIM == 3:
        d = h // H
        return d // D, d % D, h % H, w
    else:
        return h // H, h * 0, h % H, w


@triton.jit
def inside(d, h, w, D, H, W, NDIM: tl.constexpr):
    """Whether a place is in the image."""
    there = (h >= 0) & (h < H) & (w >= 0) & (w < W)
    if NDIM == 3:
        there = there & (d >= 0) & (d < D)
    return there


@triton.jit
def tap_of(tap, Y, X, NDIM: tl.constexpr):
    """(depth, height, width) of a filter tap."""
    if NDIM == 3:
        return tap // (Y * X), tap // X % Y, tap % X
    else:
        return tap * 0, tap // X, tap % X


@triton.jit
def even_part(channels, EVEN: tl.constexpr):
    """The same number, which is a multiple of EVEN, so that the compiler knows it."""
    if EVEN > 1:
        return channels // EVEN * EVEN
    else:
        return channels


# ---- forward -------------------------------------------------------------------------------------


def _forward_grid(meta):
    rows = meta["N"] * meta["Do"] * meta["Ho"] * meta["Wo"]
    return cdiv(rows, meta["BLOCK_M"]) * cdiv(meta["K_per_group"], meta["BLOCK_N"]), meta["G"]


@grouped_conv(
    directions=("forward",),
    ndims=(2, 3),
    grid=_forward_grid,
    configs=lambda p: list(_configs(p, flat=True)),
    arguments=lambda p: p.usual_arguments() | {"NDIM": p.ndim},
    constraints=_even,
    aligned=("K", "K_per_group"),
    general=lambda p, meta: meta["BLOCK_M"] * meta["BLOCK_N"] <= 128 * 64,
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
    C_per_group,
    K_per_group,
    NDIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN: tl.constexpr,
    FLAT: tl.constexpr,
):
    """One program a tile of output pixels and channels of a group."""
    C, C_per_group = even_part(C, EVEN), even_part(C_per_group, EVEN)
    pixels = N * Do * Ho * Wo
    rows, columns = tl.cdiv(pixels, BLOCK_M), tl.cdiv(K_per_group, BLOCK_N)
    group = tl.program_id(1)
    row, column = place_in_group(tl.program_id(0), rows, columns, GROUP_M)
    pixel = row * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    image, front, top, left = divided(pixel, Do, Ho, Wo, NDIM)
    front, top, left = front * stride_d - pad_d, top * stride_h - pad_h, left * stride_w - pad_w
    taps = Z * Y * X
    pixel_there, channel_there = pixel < pixels, channel < K_per_group
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if FLAT:
        depth = taps * C_per_group
        for at in range(0, depth, BLOCK_K):
            z, y, x = tap_of((at + k) // C_per_group, Y, X, NDIM)
            d = front[:, None] + (z * dilation_d)[None, :]
            h = top[:, None] + (y * dilation_h)[None, :]
            w = left[:, None] + (x * dilation_w)[None, :]
            k_there = at + k < depth
            there = pixel_there[:, None] & k_there[None, :] & inside(d, h, w, Di, Hi, Wi, NDIM)
            x_at = (((image * Di)[:, None] + d) * Hi + h) * Wi + w
            x_at = x_at * C + (group * C_per_group + (at + k) % C_per_group)[None, :]
            a = tl.load(x_ptr + x_at, mask=there, other=0.0)
            w_at = (group * K_per_group + channel)[None, :] * depth + (at + k)[:, None]
            b = tl.load(w_ptr + w_at, mask=channel_there[None, :] & k_there[:, None], other=0.0)
            sums = tl.dot(a, b, sums)
    else:
        w_row = (group * K_per_group + channel) * taps
        steps = tl.cdiv(C_per_group, BLOCK_K)
        for step in range(0, taps * steps):
            tap, depth = step // steps, step % steps * BLOCK_K
            z, y, x = tap_of(tap, Y, X, NDIM)
            d, h, w = front + z * dilation_d, top + y * dilation_h, left + x * dilation_w
            there = pixel_there & inside(d, h, w, Di, Hi, Wi, NDIM)
            k_there = k < C_per_group - depth
            x_at = (((image * Di + d) * Hi + h) * Wi + w) * C + group * C_per_group + depth
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


# ---- backward data -------------------------------------------------------------------------------


@triton.jit
def taps_of_phase(phase, stride, dilation, extent):
    """(first, step, count) of the taps t with (phase - t * dilation) divisible by the stride."""
    first, step = extent, stride
    for turn in range(0, stride):
        t = stride - 1 - turn
        first = tl.where(((phase - t * dilation) % stride == 0) & (t < extent), t, first)
        step = tl.where((t + 1) * dilation % stride == 0, t + 1, step)
    count = tl.where(first < extent, (extent - first + step - 1) // step, 0)
    return first, step, count


def _data_grid(meta):
    rows = meta["N"]
    for extent, stride in (("Di", "stride_d"), ("Hi", "stride_h"), ("Wi", "stride_w")):
        rows = rows * cdiv(meta[extent], meta[stride])
    tiles = cdiv(rows, meta["BLOCK_M"]) * cdiv(meta["C_per_group"], meta["BLOCK_N"])
    return tiles, meta["G"], meta["stride_d"] * meta["stride_h"] * meta["stride_w"]


@grouped_conv(
    directions=("bwd_data",),
    ndims=(2, 3),
    grid=_data_grid,
    configs=lambda p: list(_configs(p, flat=False)),
    arguments=lambda p: p.usual_arguments() | {"NDIM": p.ndim},
    constraints=_even,
    aligned=(),
)
@triton.jit
def implicit_data(
    dy_ptr,
    w_ptr,
    dx_ptr,
    N,
    C,
    K,
    G,
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
    C_per_group,
    K_per_group,
    NDIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN: tl.constexpr,
    FLAT: tl.constexpr,
):
    """One program a tile of input pixels whose places have one remainder by the strides, and of channels."""
    C, C_per_group = even_part(C, EVEN), even_part(C_per_group, EVEN)
    K, K_per_group = even_part(K, EVEN), even_part(K_per_group, EVEN)
    group, phase = tl.program_id(1), tl.program_id(2)
    phase_d, phase_h, phase_w = phase // (stride_h * stride_w), phase // stride_w % stride_h, phase % stride_w
    # Every stride_h-th row of an image, and so on.
    some_d, some_h, some_w = tl.cdiv(Di, stride_d), tl.cdiv(Hi, stride_h), tl.cdiv(Wi, stride_w)
    pixels = N * some_d * some_h * some_w
    rows, columns = tl.cdiv(pixels, BLOCK_M), tl.cdiv(C_per_group, BLOCK_N)
    row, column = place_in_group(tl.program_id(0), rows, columns, GROUP_M)
    pixel = row * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    image, d, h, w = divided(pixel, some_d, some_h, some_w, NDIM)
    d, h, w = d * stride_d + phase_d, h * stride_h + phase_h, w * stride_w + phase_w
    pixel_there = (pixel < pixels) & inside(d, h, w, Di, Hi, Wi, NDIM)
    channel_there = channel < C_per_group
    first_y, step_y, count_y = taps_of_phase(phase_h + pad_h, stride_h, dilation_h, Y)
    first_x, step_x, count_x = taps_of_phase(phase_w + pad_w, stride_w, dilation_w, X)
    # The outputs that the first taps meet, and how far the next ones are. The divisions are exact.
    top = (h + pad_h - first_y * dilation_h) // stride_h
    left = (w + pad_w - first_x * dilation_w) // stride_w
    down, right = step_y * dilation_h // stride_h, step_x * dilation_w // stride_w
    front, back = d, phase * 0
    first_z, step_z, count_z = phase * 0, phase * 0 + 1, phase * 0 + 1
    if NDIM == 3:
        first_z, step_z, count_z = taps_of_phase(phase_d + pad_d, stride_d, dilation_d, Z)
        front = (d + pad_d - first_z * dilation_d) // stride_d
        back = step_z * dilation_d // stride_d
    taps = Z * Y * X
    steps = tl.cdiv(K_per_group, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, count_z * count_y * count_x * steps):
        tap, depth = step // steps, step % steps * BLOCK_K
        z, y, x = tap_of(tap, count_y, count_x, NDIM)
        out_d, out_h, out_w = front - z * back, top - y * down, left - x * right
        there = pixel_there & inside(out_d, out_h, out_w, Do, Ho, Wo, NDIM)
        k_there = k < K_per_group - depth
        y_at = (((image * Do + out_d) * Ho + out_h) * Wo + out_w) * K + group * K_per_group + depth
        a = tl.load(dy_ptr + y_at[:, None] + k[None, :], mask=there[:, None] & k_there[None, :], other=0.0)
        at_tap = ((first_z + z * step_z) * Y + first_y + y * step_y) * X + first_x + x * step_x
        w_at = (group * K_per_group + depth + k) * taps + at_tap
        b = tl.load(
            w_ptr + w_at[:, None] * C_per_group + channel[None, :],
            mask=k_there[:, None] & channel_there[None, :],
            other=0.0,
        )
        sums = tl.dot(a, b, sums)
    x_at = ((image * Di + d) * Hi + h) * Wi + w
    x_at = x_at[:, None] * C + group * C_per_group + channel[None, :]
    tl.store(
        dx_ptr + x_at, sums.to(dx_ptr.dtype.element_ty), mask=pixel_there[:, None] & channel_there[None, :]
    )


# ---- backward weight -----------------------------------------------------------------------------


def _columns(meta):
    """Tiles of columns: within a tap, or over all of them."""
    taps = meta["Z"] * meta["Y"] * meta["X"]
    if meta["FLAT"]:
        return cdiv(taps * meta["C_per_group"], meta["BLOCK_N"])
    return taps * cdiv(meta["C_per_group"], meta["BLOCK_N"])


def _weights(p: GroupedConvView):
    return p.K * p.Z * p.Y * p.X * p.C_per_group


def _weight_constraints(p: GroupedConvView, meta):
    yield from _even(p, meta)
    yield (_weights(p) * meta["SPLIT_K"] < 2**28, "the parts of the result would take more than 1 GiB")


@grouped_conv(
    directions=("bwd_weight",),
    ndims=(2, 3),
    grid=lambda meta: (
        cdiv(meta["K_per_group"], meta["BLOCK_M"]) * _columns(meta),
        meta["G"],
        meta["SPLIT_K"],
    ),
    configs=lambda p: list(_weight_configs(p)),
    arguments=lambda p: p.usual_arguments() | {"NDIM": p.ndim, "parts_ptr": p.workspace("fp32")},
    constraints=_weight_constraints,
    aligned=(),
    workspace_bytes=lambda p, meta: _weights(p) * (4 * meta["SPLIT_K"]),
    after=[
        launch(
            add_parts,
            arguments=lambda p: {
                "parts_ptr": p.workspace("fp32"),
                "c_ptr": p.dw,
                "values": _weights(p),
                "SUM_BLOCK": SUM_BLOCK,
            },
            grid=lambda meta: (cdiv(meta["values"], SUM_BLOCK),),
        )
    ],
)
@triton.jit
def implicit_weight(
    x_ptr,
    dy_ptr,
    parts_ptr,
    N,
    C,
    K,
    G,
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
    C_per_group,
    K_per_group,
    NDIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
    FLAT: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """One program a tile of a group's weights and part of the output pixels."""
    C, C_per_group = even_part(C, EVEN), even_part(C_per_group, EVEN)
    K, K_per_group = even_part(K, EVEN), even_part(K_per_group, EVEN)
    taps = Z * Y * X
    group, part = tl.program_id(1), tl.program_id(2)
    rows = tl.cdiv(K_per_group, BLOCK_M)
    row, column = tl.program_id(0) % rows, tl.program_id(0) // rows
    m, n = row * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    if FLAT:
        n += column * BLOCK_N
        tap = n // C_per_group
        n_there = tap < taps
        channel = n % C_per_group
    else:
        columns = tl.cdiv(C_per_group, BLOCK_N)
        tap = column // columns
        channel = column % columns * BLOCK_N + n
        n_there = channel < C_per_group
        n = tap * C_per_group + channel
    z, y, x = tap_of(tap, Y, X, NDIM)
    down_d, down_h, down_w = z * dilation_d - pad_d, y * dilation_h - pad_h, x * dilation_w - pad_w
    pixels = N * Do * Ho * Wo
    share = tl.cdiv(tl.cdiv(pixels, BLOCK_K), SPLIT_K) * BLOCK_K
    begin = part * share
    end = min(pixels, begin + share)
    m_there = m < K_per_group
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for at in range(begin, end, BLOCK_K):
        pixel = at + tl.arange(0, BLOCK_K)
        there = pixel < end
        image, d, h, w = divided(pixel, Do, Ho, Wo, NDIM)
        d, h, w = d * stride_d, h * stride_h, w * stride_w
        a_at = pixel[None, :] * K + group * K_per_group + m[:, None]
        a = tl.load(dy_ptr + a_at, mask=m_there[:, None] & there[None, :], other=0.0)
        if FLAT:
            d = d[:, None] + down_d[None, :]
            h = h[:, None] + down_h[None, :]
            w = w[:, None] + down_w[None, :]
            b_there = there[:, None] & inside(d, h, w, Di, Hi, Wi, NDIM)
            b_at = (((image * Di)[:, None] + d) * Hi + h) * Wi + w
        else:
            d, h, w = d + down_d, h + down_h, w + down_w
            b_there = (there & inside(d, h, w, Di, Hi, Wi, NDIM))[:, None]
            b_at = (((image * Di + d) * Hi + h) * Wi + w)[:, None]
        b_at = b_at * C + group * C_per_group + channel[None, :]
        b = tl.load(x_ptr + b_at, mask=b_there & n_there[None, :], other=0.0)
        sums = tl.dot(a, b, sums)
    to = (group * K_per_group + m)[:, None] * (taps * C_per_group) + n[None, :]
    parts = parts_ptr + part.to(tl.int64) * K * taps * C_per_group
    tl.store(parts + to, sums, mask=m_there[:, None] & n_there[None, :])
