"""Convolutions with stride 1 in Triton, 2D, by Hopper's tensor memory accelerator.

Forward, and backward data, which is forward on dY with the taps in reverse. A tile of pixels is a box of
BOX_N images, BOX_H rows and BOX_W columns, so that a tap's operand is a box of the images, moved by the tap:
what lies beyond an image is read as 0, which is what padding is. BLOCK_K must not reach beyond the channels:
there zeros would meet filters of the next tap, which need not be finite. The product is done transposed,
because Triton takes a box, which it reshapes, from LDS as second operand only. The second extent of the grid
is the group. Each program makes its tensor descriptors itself, in scratch memory.
"""

import triton
import triton.language as tl

from tile_oracle.triton import GroupedConvView, cdiv, grouped_conv

# BOX_N, BOX_H, BOX_W, BLOCK_N, BLOCK_K, num_warps, num_stages
BOXES = (
    *(
        (1, 8, 16, 128, 64, 8, 4),
        (1, 8, 16, 128, 64, 4, 4),
        (1, 8, 16, 256, 64, 8, 3),
        (1, 8, 16, 64, 64, 4, 4),
    ),
    *((1, 4, 32, 128, 64, 8, 4), (1, 4, 32, 64, 64, 4, 4), (2, 8, 8, 128, 64, 8, 4), (2, 8, 8, 64, 64, 4, 4)),
    *(
        (1, 8, 8, 128, 64, 4, 4),
        (1, 8, 8, 64, 64, 4, 5),
        (1, 16, 16, 128, 64, 8, 3),
        (1, 8, 16, 64, 32, 4, 4),
    ),
)


def _configs(p: GroupedConvView):
    names = ("BOX_N", "BOX_H", "BOX_W", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return [dict(zip(names, values, strict=True)) for values in BOXES]


def _fits(p: GroupedConvView, meta):
    yield (p.stride_h * p.stride_w == 1, "a stride is not 1")
    yield ((p.C % 8 == 0) & (p.K % 8 == 0), "rows do not begin at multiples of 16 bytes")
    yield (
        (p.C_per_group % 8 == 0) & (p.K_per_group % 8 == 0),
        "channels of a group are not multiples of 8",
    )


def _in_groups(p: GroupedConvView, meta):
    """A box of channels would reach into the next tap or group, whose values may not be finite."""
    yield from _fits(p, meta)
    depth = p.C_per_group if p.direction == "forward" else p.K_per_group
    width = p.K_per_group if p.direction == "forward" else p.C_per_group
    # Backward data reads filters by rows, of which there is none beyond the last channel.
    alone = (p.G == 1) & ((p.direction == "bwd_data") | (p.Y * p.X == 1))
    yield (alone | (depth % meta["BLOCK_K"] == 0), "BLOCK_K reaches into the next tap or group")
    yield ((p.G == 1) | (width % meta["BLOCK_N"] == 0), "BLOCK_N reaches into the next group")


def _boxes(meta, height, width):
    boxes = cdiv(meta["N"], meta["BOX_N"]) * cdiv(height, meta["BOX_H"])
    return boxes * cdiv(width, meta["BOX_W"])


@triton.jit
def window(
    from_ptr,
    w_ptr,
    to_ptr,
    N,
    channels_in,
    channels_out,
    G,
    in_h,
    in_w,
    out_h,
    out_w,
    Y,
    X,
    first_h,
    first_w,
    step_h,
    step_w,
    depth,
    width,
    W_BY_ROW: tl.constexpr,
    BOX_N: tl.constexpr,
    BOX_H: tl.constexpr,
    BOX_W: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A tile of results: tap (y, x) reads the box that is moved by first + (y, x) step."""
    BLOCK_M: tl.constexpr = BOX_N * BOX_H * BOX_W
    source = tl.make_tensor_descriptor(
        from_ptr,
        [N, in_h, in_w, channels_in],
        [in_h * in_w * channels_in, in_w * channels_in, channels_in, 1],
        [BOX_N, BOX_H, BOX_W, BLOCK_K],
    )
    taps = Y * X
    columns = tl.cdiv(width, BLOCK_N)
    wide, high = tl.cdiv(out_w, BOX_W), tl.cdiv(out_h, BOX_H)
    group, tile = tl.program_id(1), tl.program_id(0) // columns
    column = tl.program_id(0) % columns * BLOCK_N
    image = tile // (wide * high) * BOX_N
    h, w = tile // wide % high * BOX_H, tile % wide * BOX_W
    # Filters lie as (output channel, tap, input channel); of backward data the outputs are the depth.
    if W_BY_ROW:
        filters = tl.make_tensor_descriptor(
            w_ptr, [G * depth, taps * width], [taps * width, 1], [BLOCK_K, BLOCK_N]
        )
    else:
        filters = tl.make_tensor_descriptor(
            w_ptr, [G * width, taps * depth], [taps * depth, 1], [BLOCK_N, BLOCK_K]
        )
    sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    steps = tl.cdiv(depth, BLOCK_K)
    for step in range(0, taps * steps):
        tap, k = step // steps, step % steps * BLOCK_K
        at_h, at_w = h + first_h + tap // X * step_h, w + first_w + tap % X * step_w
        box = source.load([image, at_h, at_w, group * depth + k]).reshape(BLOCK_M, BLOCK_K)
        if W_BY_ROW:
            part = filters.load([group * depth + k, tap * width + column]).T
        else:
            part = filters.load([group * width + column, tap * depth + k])
        sums = tl.dot(part, box.T, sums)
    result = tl.make_tensor_descriptor(
        to_ptr,
        [N, out_h, out_w, channels_out],
        [out_h * out_w * channels_out, out_w * channels_out, channels_out, 1],
        [BOX_N, BOX_H, BOX_W, BLOCK_N],
    )
    values = sums.to(to_ptr.dtype.element_ty).T.reshape(BOX_N, BOX_H, BOX_W, BLOCK_N)
    result.store([image, h, w, group * width + column], values)


def _forward(p: GroupedConvView):
    return {
        **{"from_ptr": p.x, "w_ptr": p.w, "to_ptr": p.y, "N": p.N, "channels_in": p.C, "channels_out": p.K},
        **{"G": p.G, "in_h": p.Hi, "in_w": p.Wi, "out_h": p.Ho, "out_w": p.Wo, "Y": p.Y, "X": p.X},
        **{"first_h": -p.pad_h, "first_w": -p.pad_w, "step_h": p.dilation_h, "step_w": p.dilation_w},
        **{"depth": p.C_per_group, "width": p.K_per_group, "W_BY_ROW": False},
    }


def _data(p: GroupedConvView):
    return {
        **{"from_ptr": p.dy, "w_ptr": p.w, "to_ptr": p.dx, "N": p.N, "channels_in": p.K, "channels_out": p.C},
        **{"G": p.G, "in_h": p.Ho, "in_w": p.Wo, "out_h": p.Hi, "out_w": p.Wi, "Y": p.Y, "X": p.X},
        **{"first_h": p.pad_h, "first_w": p.pad_w, "step_h": -p.dilation_h, "step_w": -p.dilation_w},
        **{"depth": p.K_per_group, "width": p.C_per_group, "W_BY_ROW": True},
    }


grouped_conv(
    directions=("forward", "bwd_data"),
    ndims=(2,),
    grid=lambda meta: (
        _boxes(meta, meta["out_h"], meta["out_w"]) * cdiv(meta["width"], meta["BLOCK_N"]),
        meta["G"],
    ),
    configs=_configs,
    arguments=lambda p: _forward(p) if p.direction == "forward" else _data(p),
    constraints=_in_groups,
    aligned=(),
    archs=("sm_90",),
)(window)
