"""1x1 convolutions of one group in Triton: products of matrices, by the functions of gemm.py and its like.

With stride 1 and no padding a pixel of the result needs one pixel of the operand. Forward is Y = X W^T,
backward data dX = dY W, backward weight dW = dY^T X, where X, Y have a row a pixel and W a row an output
channel.
"""

from gemm import (
    CDNA,
    SUM_BLOCK,
    add_parts,
    configurations,
    near,
    parts_fit,
    split_k,
    tiles,
    tiles_of,
)
from gemm_stream_k import ADDED_ROWS, add_streamed, stream_k, tma_stream_k
from gemm_tma import specializes, tma, tma_split_k, tma_uneven

from tile_oracle.triton import GroupedConvView, cdiv, grouped_conv, launch, minimum

DIRECTIONS = ("forward", "bwd_data", "bwd_weight")

# BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages
TILES = ((128, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 64, 64, 4, 5), (128, 32, 32, 4, 4))
# The same, and RESIDENT
TMA = (
    *((128, 256, 64, 8, 3, 1), (256, 128, 64, 8, 3, 1), (128, 128, 64, 8, 4, 1), (128, 128, 64, 4, 3, 2)),
    *((256, 64, 64, 8, 4, 1), (128, 64, 64, 4, 4, 2), (64, 128, 64, 4, 3, 2), (64, 64, 64, 4, 5, 2)),
    *((256, 32, 64, 8, 4, 1), (128, 32, 64, 4, 4, 2), (128, 64, 32, 4, 4, 2)),
)
SPECIALIZED = ((128, 256, 64, 4, 4, 1), (128, 128, 64, 4, 5, 1))
# BLOCK_M, BLOCK_N, MORE_N, BLOCK_K, num_warps, num_stages, RESIDENT
UNEVEN = (
    *((128, 128, 64, 64, 8, 4, 1), (128, 64, 32, 64, 4, 4, 1), (64, 128, 32, 64, 4, 3, 2)),
    *((64, 64, 32, 64, 4, 4, 2), (128, 32, 16, 64, 4, 4, 2)),
)
# For backward weight, whose depth is the pixels
STREAM = ((128, 128, 64, 4, 4), (64, 128, 64, 4, 5))
SPLIT = ((128, 128, 64, 4, 4), (64, 64, 128, 4, 4), (64, 64, 64, 4, 4))
SPLITS = (8, 64)
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")


def _pixels(p: GroupedConvView):
    return p.N * p.Do * p.Ho * p.Wo


def _sides(p: GroupedConvView):
    """(A, B, C), (M, N, K), whether A and B lie by rows."""
    if p.direction == "forward":
        return (p.x, p.w, p.y), (_pixels(p), p.K, p.C), (True, False)
    if p.direction == "bwd_data":
        return (p.dy, p.w, p.dx), (_pixels(p), p.C, p.K), (True, True)
    return (p.dy, p.x, p.dw), (p.K, p.C, _pixels(p)), (False, True)


def _order(p: GroupedConvView):
    (a, b, c), (m, n, k), (a_by_row, b_by_row) = _sides(p)
    found = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": m, "N": n, "K": k}
    return found | {"A_BY_ROW": a_by_row, "B_BY_ROW": b_by_row}


def _strides(p: GroupedConvView):
    _, (m, n, k), (a_by_row, b_by_row) = _sides(p)
    return {
        "stride_am": k if a_by_row else 1,
        "stride_ak": 1 if a_by_row else m,
        "stride_bk": n if b_by_row else 1,
        "stride_bn": 1 if b_by_row else k,
        "stride_cm": n,
        "stride_cn": 1,
    }


def _units(p: GroupedConvView):
    return {"UNITS": p.compute_units}


def _parts(p: GroupedConvView):
    found = _order(p)
    del found["c_ptr"]
    return found | {"parts_ptr": p.workspace("fp32")}


def _pointwise(p: GroupedConvView, meta):
    yield (p.G == 1, "there are several groups")
    yield (p.Z * p.Y * p.X == 1, "the filter is not 1x1")
    yield (p.stride_d * p.stride_h * p.stride_w == 1, "a stride is not 1")
    yield (p.pad_d + p.pad_h + p.pad_w == 0, "there is padding")


def _near(p: GroupedConvView, meta):
    yield from _pointwise(p, meta)
    yield from near(p, meta)


def _rows_of_16_bytes(p: GroupedConvView, meta):
    yield from _pointwise(p, meta)
    yield ((p.C % 8 == 0) & (p.K % 8 == 0), "rows do not begin at multiples of 16 bytes")
    yield specializes(meta)


def _amd(p: GroupedConvView) -> bool:
    return p.arch.startswith("gfx")


def _tma(p: GroupedConvView):
    for group, special in ((TMA, False), (SPECIALIZED, True)):
        for *values, resident in group:
            more = {"FLATTEN": False, "SPECIALIZE": special, "HALVES": special, "RESIDENT": resident}
            yield dict(zip(NAMES, values, strict=True)) | {"GROUP_M": 8} | more


def _uneven(p: GroupedConvView):
    names = ("BLOCK_M", "BLOCK_N", "MORE_N", *NAMES[2:], "RESIDENT")
    return [dict(zip(names, values, strict=True)) | {"GROUP_M": 8} for values in UNEVEN]


def _tiles_or_uneven(meta):
    return cdiv(meta["M"], meta["BLOCK_M"]) * cdiv(meta["N"], meta["BLOCK_N"] + meta.get("MORE_N", 0))


def _resident_grid(meta):
    return (minimum(_tiles_or_uneven(meta), meta["UNITS"] * meta["RESIDENT"]),)


grouped_conv(
    directions=DIRECTIONS,
    ndims=(2, 3),
    grid=lambda meta: (tiles_of(meta),),
    configs=lambda p: configurations(p, TILES, CDNA[1:8]),
    arguments=lambda p: _order(p) | _strides(p),
    constraints=_near,
    aligned=("C", "K"),
    general=False,
)(tiles)

grouped_conv(
    directions=DIRECTIONS,
    ndims=(2, 3),
    grid=_resident_grid,
    configs=lambda p: list(_tma(p)),
    arguments=lambda p: _order(p) | _units(p),
    constraints=_rows_of_16_bytes,
    aligned=(),
    archs=("sm_90",),
)(tma)

grouped_conv(
    directions=DIRECTIONS,
    ndims=(2, 3),
    grid=_resident_grid,
    configs=_uneven,
    arguments=lambda p: _order(p) | _units(p),
    constraints=_rows_of_16_bytes,
    aligned=(),
    archs=("sm_90",),
)(tma_uneven)


# ---- backward weight: few tiles, much depth -----------------------------------------------------


def _streamed(p: GroupedConvView):
    return _order(p) | _units(p) | {"parts_ptr": p.workspace("fp32")}


def _streamed_bytes(p: GroupedConvView, meta):
    return p.compute_units * (2 * 4 * meta["BLOCK_M"] * meta["BLOCK_N"])


ADD_STREAMED = [
    launch(
        add_streamed,
        arguments=lambda p: {
            "parts_ptr": p.workspace("fp32"),
            "c_ptr": p.dw,
            **{"M": p.K, "N": p.C, "K": _pixels(p)},
            **{"UNITS": p.compute_units, "ADDED_ROWS": ADDED_ROWS},
        },
        grid=lambda meta: (minimum(tiles_of(meta), 2 * meta["UNITS"]), meta["BLOCK_M"] // ADDED_ROWS),
    )
]
ADD_PARTS = [
    launch(
        add_parts,
        arguments=lambda p: {
            **{"parts_ptr": p.workspace("fp32"), "c_ptr": p.dw},
            **{"values": p.K * p.C, "SUM_BLOCK": SUM_BLOCK},
        },
        grid=lambda meta: (cdiv(meta["values"], SUM_BLOCK),),
    )
]


def _split(p: GroupedConvView, **more):
    cdna = ((128, 128, 64, 4, 2), (64, 64, 64, 4, 2), (64, 128, 64, 4, 2))
    return [one for parts in SPLITS for one in configurations(p, SPLIT, cdna, SPLIT_K=parts, **more)]


def _deep_near(p: GroupedConvView, meta):
    yield from _near(p, meta)
    yield from parts_fit(meta)


def _deep_tma(p: GroupedConvView, meta):
    yield from _rows_of_16_bytes(p, meta)
    yield from parts_fit(meta)


grouped_conv(
    directions=("bwd_weight",),
    ndims=(2, 3),
    grid=lambda meta: (meta["UNITS"],),
    configs=lambda p: configurations(p, (), ((128, 128, 64, 4, 2), (64, 128, 64, 4, 2))),
    arguments=lambda p: {
        name: value for name, value in (_streamed(p) | _strides(p)).items() if name != "stride_cn"
    },
    constraints=_near,
    aligned=("C", "K"),
    general=False,
    archs=("gfx950", "gfx942", "gfx90a"),
    workspace_bytes=_streamed_bytes,
    after=ADD_STREAMED,
)(stream_k)

grouped_conv(
    directions=("bwd_weight",),
    ndims=(2, 3),
    grid=lambda meta: (meta["UNITS"],),
    configs=lambda p: configurations(p, STREAM, ()),
    arguments=_streamed,
    constraints=_rows_of_16_bytes,
    aligned=(),
    archs=("sm_90",),
    workspace_bytes=_streamed_bytes,
    after=ADD_STREAMED,
)(tma_stream_k)

grouped_conv(
    directions=("bwd_weight",),
    ndims=(2, 3),
    grid=lambda meta: (tiles_of(meta), meta["SPLIT_K"]),
    configs=_split,
    arguments=lambda p: {
        name: value for name, value in (_parts(p) | _strides(p)).items() if not name.startswith("stride_c")
    },
    constraints=_deep_near,
    aligned=("C", "K"),
    general=False,
    archs=("gfx950", "gfx942", "gfx90a"),
    workspace_bytes=lambda p, meta: p.K * p.C * (4 * meta["SPLIT_K"]),
    after=ADD_PARTS,
)(split_k)

grouped_conv(
    directions=("bwd_weight",),
    ndims=(2, 3),
    grid=lambda meta: (tiles_of(meta), meta["SPLIT_K"]),
    configs=lambda p: _split(p, SWAPPED=False),
    arguments=_parts,
    constraints=_deep_tma,
    aligned=(),
    archs=("sm_90",),
    workspace_bytes=lambda p, meta: p.K * p.C * (4 * meta["SPLIT_K"]),
    after=ADD_PARTS,
)(tma_split_k)
