"""RMS normalization kernels for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.operations.rms_norm.problem import EPSILON
from tile_oracle.operations.rowwise.cpu_source import unit
from tile_oracle.operations.rowwise.problem import RowKernel


@dataclass(frozen=True)
class RmsNormKernel(RowKernel):
    """See RowKernel."""

    op: ClassVar[str] = "rms_norm"


_OF_ROW = r"""
static void of_row(const Element *x, const Element *w, Element *y, int64_t columns) {
  float sum[LANES];
  for (int i = 0; i < LANES; ++i) sum[i] = 0;
  int64_t c = 0;
  for (; c + LANES <= columns; c += LANES)
    for (int i = 0; i < LANES; ++i) { float v = load(x[c + i]); sum[i] += v * v; }
  for (; c < columns; ++c) { float v = load(x[c]); sum[0] += v * v; }
  for (int i = 1; i < LANES; ++i) sum[0] += sum[i];
  float factor = 1 / __builtin_sqrtf(sum[0] / (float)columns + EPSILON);
  for (c = 0; c < columns; ++c) y[c] = store(load(x[c]) * factor * load(w[c]));
}
"""


def cpu_source(kernel: RmsNormKernel) -> str:
    """Returns the translation unit of a kernel."""
    return f"#define EPSILON {EPSILON}f\n{unit(kernel, _OF_ROW)}"
