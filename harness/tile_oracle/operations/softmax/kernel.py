"""Softmax kernels for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.operations.rowwise.cpu_source import EXPONENTIAL, unit
from tile_oracle.operations.rowwise.problem import RowKernel


@dataclass(frozen=True)
class SoftmaxKernel(RowKernel):
    """See RowKernel."""

    op: ClassVar[str] = "softmax"


_OF_ROW = r"""
/* The exponentials are computed twice, so that none is rounded to the element's type before the division. */
static void of_row(const Element *x, const Element *, Element *y, int64_t columns) {
  float most[LANES], sum[LANES];
  for (int i = 0; i < LANES; ++i) { most[i] = load(x[0]); sum[i] = 0; }
  int64_t c = 0;
  for (; c + LANES <= columns; c += LANES)
    for (int i = 0; i < LANES; ++i) { float v = load(x[c + i]); most[i] = v > most[i] ? v : most[i]; }
  for (; c < columns; ++c) { float v = load(x[c]); most[0] = v > most[0] ? v : most[0]; }
  for (int i = 1; i < LANES; ++i) most[0] = most[i] > most[0] ? most[i] : most[0];
  for (c = 0; c + LANES <= columns; c += LANES)
    for (int i = 0; i < LANES; ++i) sum[i] += exp_of(load(x[c + i]) - most[0]);
  for (; c < columns; ++c) sum[0] += exp_of(load(x[c]) - most[0]);
  for (int i = 1; i < LANES; ++i) sum[0] += sum[i];
  for (c = 0; c < columns; ++c) y[c] = store(exp_of(load(x[c]) - most[0]) / sum[0]);
}
"""


def cpu_source(kernel: SoftmaxKernel) -> str:
    """Returns the translation unit of a kernel."""
    return unit(kernel, EXPONENTIAL + _OF_ROW)
