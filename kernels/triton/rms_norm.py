"""RMS normalization of rows in Triton, computed in fp32 and rounded once.

rms_norm_rows   a program has ROWS whole rows in registers and reads them once
rms_norm_walk   a program walks over a row twice: sum of squares, then the results
"""

import triton
import triton.language as tl
from softmax import WALKS, of_rows, one_block

from tile_oracle.triton import cdiv, rms_norm


@rms_norm(
    grid=lambda meta: (cdiv(meta["tokens"], meta["ROWS"]),),
    configs=lambda p: list(of_rows(p)),
    constraints=lambda p, meta: one_block(p.hidden, meta),
)
@triton.jit
def rms_norm_rows(x_ptr, w_ptr, y_ptr, tokens, hidden, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Whole rows, read once."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    at = row.to(tl.int64)[:, None] * hidden + columns[None, :]
    there = (row < tokens)[:, None] & (columns < hidden)[None, :]
    x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=columns < hidden, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, axis=1) / hidden + epsilon)
    value = x * factor[:, None] * w[None, :]
    tl.store(y_ptr + at, value.to(y_ptr.dtype.element_ty), mask=there)


@rms_norm(
    grid=lambda meta: (meta["tokens"],),
    configs=WALKS,
    constraints=lambda p, meta: [(p.hidden > meta["BLOCK"], "a row fits into one block")],
)
@triton.jit
def rms_norm_walk(x_ptr, w_ptr, y_ptr, tokens, hidden, epsilon, BLOCK: tl.constexpr):
    """A row in two passes."""
    row = tl.program_id(0).to(tl.int64) * hidden
    squares = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, hidden, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + columns, mask=columns < hidden, other=0.0).to(tl.float32)
        squares += x * x
    factor = tl.rsqrt(tl.sum(squares, axis=0) / hidden + epsilon)
    for begin in range(0, hidden, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        there = columns < hidden
        x = tl.load(x_ptr + row + columns, mask=there, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + columns, mask=there, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + columns, (x * factor * w).to(y_ptr.dtype.element_ty), mask=there)
