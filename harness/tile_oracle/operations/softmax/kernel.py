"""Softmax kernels for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.operations.rowwise.cpu_source import unit
from tile_oracle.operations.rowwise.kernel import RowKernel


@dataclass(frozen=True)
class SoftmaxKernel(RowKernel):
    """See RowKernel."""

    op: ClassVar[str] = "softmax"


_OF_ROW = r"""
/* exp(x) for x <= 0: 2^n times Taylor's polynomial of degree 7 on [-0.35, 0.35], with an error below 5e-9.
   n ln 2 is subtracted in two parts, the first of which has few bits. */
static inline float exp_of(float x) {
  if (!(x >= -87.0f)) return x != x ? x : 0.0f;
  int n = (int)(x * 1.44269504f - 0.5f);
  float f = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.3888889e-3f + f * 1.9841270e-4f;
  p = 4.1666667e-2f + f * (8.3333333e-3f + f * p);
  p = 1 + f * (1 + f * (0.5f + f * (1.6666667e-1f + f * p)));
  int32_t bits = (n + 127) << 23;
  float scale;
  __builtin_memcpy(&scale, &bits, 4);
  return p * scale;
}

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
    """The translation unit of a kernel."""
    return unit(kernel, _OF_ROW)
