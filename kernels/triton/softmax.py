"""Softmax of rows in Triton, computed in fp32. Memory bandwidth bounds it.

softmax_rows     a program has ROWS whole rows in registers and reads them once
softmax_online   a program walks over a row twice: maximum and sum in one pass, then the results
softmax_split    the same with SPAN columns a program, for few long rows: partial maxima and sums go through a
                 workspace
"""

import triton
import triton.language as tl

from tile_oracle.triton import SoftmaxView, cdiv, launch, softmax

AMD = ("gfx950", "gfx942", "gfx90a")
BLOCKS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PARTS = 1024


@triton.jit
def row_block(x_ptr, row, columns, length):
    """Some columns of a row in fp32; -inf beyond its end."""
    x = tl.load(x_ptr + row.to(tl.int64) * length + columns, mask=columns < length, other=-float("inf"))
    return x.to(tl.float32)


@triton.jit
def maximum_and_sum(x_ptr, row, begin, end, length, BLOCK: tl.constexpr):
    """The maximum m of a row's columns from begin to end, and the sum of exp(x - m)."""
    most = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for at in range(begin, end, BLOCK):
        x = row_block(x_ptr, row, at + tl.arange(0, BLOCK), length)
        higher = tl.maximum(most, tl.max(x, axis=0))
        subtracted = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(most - subtracted) + tl.sum(tl.exp(x - subtracted), axis=0)
        most = higher
    return most, total


@triton.jit
def write_row(x_ptr, y_ptr, row, begin, end, length, most, total, BLOCK: tl.constexpr):
    """The results of a row's columns from begin to end."""
    y = y_ptr + row.to(tl.int64) * length
    for at in range(begin, end, BLOCK):
        columns = at + tl.arange(0, BLOCK)
        x = row_block(x_ptr, row, columns, length)
        value = tl.exp(x - most) / total
        tl.store(y + columns, value.to(y_ptr.dtype.element_ty), mask=columns < length)


# ---- configurations ------------------------------------------------------------------------------


def of_rows(p, least: int = 4, most: int = 64):
    """Tiles of ROWS x BLOCK elements, with `least` to `most` elements a thread."""
    wave = 64 if p.arch in AMD else 32
    for block in BLOCKS:
        for rows in (1, 4, 16):
            for warps in (1, 2, 4, 8, 16):
                elements = rows * block // (warps * wave)
                if least <= elements <= most and (rows == 1 or rows * block <= 4096):
                    yield {"BLOCK": block, "ROWS": rows, "num_warps": warps}


def one_block(length, meta):
    """A row fits into a block, and not into half of one."""
    yield length <= meta["BLOCK"], "a row is longer than BLOCK"
    if meta["BLOCK"] > BLOCKS[0]:
        yield length > meta["BLOCK"] // 2, "half of BLOCK is enough for a row"


WALKS = tuple(
    {"BLOCK": block, "num_warps": warps} for block, warps in ((1024, 4), (2048, 8), (4096, 8), (8192, 16))
)
SPLITS = tuple(
    {"SPAN": span, "BLOCK": block, "num_warps": warps}
    for span, block, warps in ((4096, 2048, 4), (8192, 4096, 8), (16384, 4096, 8), (32768, 8192, 16))
)


# ---- the kernels ---------------------------------------------------------------------------------


@softmax(
    grid=lambda meta: (cdiv(meta["rows"], meta["ROWS"]),),
    configs=lambda p: list(of_rows(p)),
    constraints=lambda p, meta: one_block(p.length, meta),
)
@triton.jit
def softmax_rows(x_ptr, y_ptr, rows, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Whole rows, read once."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    at = row.to(tl.int64)[:, None] * length + columns[None, :]
    inside = (columns < length)[None, :]
    there = (row < rows)[:, None] & inside
    x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
    x = tl.where(inside, x, -float("inf"))
    terms = tl.exp(x - tl.max(x, axis=1)[:, None])
    value = terms / tl.sum(terms, axis=1)[:, None]
    tl.store(y_ptr + at, value.to(y_ptr.dtype.element_ty), mask=there)


@softmax(
    grid=lambda meta: (meta["rows"],),
    configs=WALKS,
    constraints=lambda p, meta: [(p.length > meta["BLOCK"], "a row fits into one block")],
)
@triton.jit
def softmax_online(x_ptr, y_ptr, rows, length, BLOCK: tl.constexpr):
    """A row in two passes."""
    row = tl.program_id(0)
    most, total = maximum_and_sum(x_ptr, row, 0, length, length, BLOCK)
    write_row(x_ptr, y_ptr, row, 0, length, length, most, total, BLOCK)


def _parts(meta):
    return cdiv(meta["length"], meta["SPAN"])


def _split_arguments(p: SoftmaxView):
    return p.usual_arguments() | {"most_ptr": p.workspace(), "sum_ptr": p.workspace(offset_bytes=_sums_at(p))}


def _sums_at(p: SoftmaxView):
    """The sums begin behind room for the maxima of PARTS parts a row."""
    return p.rows * (PARTS * 4)


@triton.jit
def softmax_from_parts(
    x_ptr,
    y_ptr,
    most_ptr,
    sum_ptr,
    rows,
    length,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr = PARTS,
):
    """The results of a part, from the maxima and sums of all parts of its row."""
    row, part = tl.program_id(0), tl.program_id(1)
    number = tl.arange(0, PARTS)
    there = number < tl.cdiv(length, SPAN)
    maxima = tl.load(most_ptr + row * PARTS + number, mask=there, other=-float("inf"))
    sums = tl.load(sum_ptr + row * PARTS + number, mask=there, other=0.0)
    most = tl.max(maxima, axis=0)
    total = tl.sum(sums * tl.exp(maxima - most), axis=0)
    begin = part * SPAN
    write_row(x_ptr, y_ptr, row, begin, tl.minimum(begin + SPAN, length), length, most, total, BLOCK)


@softmax(
    grid=lambda meta: (meta["rows"], _parts(meta)),
    configs=SPLITS,
    arguments=_split_arguments,
    constraints=lambda p, meta: [
        (p.length > meta["SPAN"], "a row fits into one part"),
        (p.length <= meta["SPAN"] * PARTS, f"a row has more than {PARTS} parts"),
        (p.rows <= 1024, "there are rows enough for all compute units"),
    ],
    workspace_bytes=lambda p, meta: _sums_at(p) * 2,
    after=[
        launch(softmax_from_parts, grid=lambda meta: (meta["rows"], _parts(meta)), arguments=_split_arguments)
    ],
)
@triton.jit
def softmax_split(
    x_ptr,
    y_ptr,
    most_ptr,
    sum_ptr,
    rows,
    length,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr = PARTS,
):
    """Maximum and sum of a part of a row."""
    row, part = tl.program_id(0), tl.program_id(1)
    begin = part * SPAN
    most, total = maximum_and_sum(x_ptr, row, begin, tl.minimum(begin + SPAN, length), length, BLOCK)
    tl.store(most_ptr + row * PARTS + part, most)
    tl.store(sum_ptr + row * PARTS + part, total)
