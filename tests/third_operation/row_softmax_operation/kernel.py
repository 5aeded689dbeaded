"""Softmax kernels: `block` elements of a row are reduced in parallel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel


@dataclass(frozen=True)
class SoftmaxKernel(SizedKernel):
    dtype: str
    block: int

    op: ClassVar[str] = "row_softmax"
    sizes: ClassVar = {"block": (1, 4, 16)}

    def cpu_source(self) -> str:
        return f"#define BLOCK {self.block}\n{SOURCE}"


SOURCE = r"""
#include <stdint.h>

#define VISIBLE extern "C" __attribute__((visibility("default")))

struct Args { const float *in; float *out; void *workspace; int64_t rows, columns; };

/* exp(x) for x <= 0: 2^n times a polynomial of degree 6 on [-0.5, 0.5]. */
static inline float exp_of(float x) {
  if (x < -87.0f) return 0.0f;
  float t = x * 1.44269504f;
  int n = (int)(t - 0.5f);
  float f = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 4.1666668e-2f + f * (8.3333e-3f + f * 1.3889e-3f);
  p = 1 + f * (1 + f * (0.5f + f * (1.6666667e-1f + f * p)));
  int32_t bits = (n + 127) << 23;
  float scale;
  __builtin_memcpy(&scale, &bits, 4);
  return p * scale;
}

VISIBLE int32_t to_abi_version(void) { return 1; }
VISIBLE int64_t to_workspace_bytes(const Args *) { return 0; }

VISIBLE int32_t to_launch(const Args *args) {
  const int64_t columns = args->columns;
  for (int64_t row = 0; row < args->rows; ++row) {
    const float *x = args->in + row * columns;
    float *y = args->out + row * columns;
    float most[BLOCK], sum[BLOCK];
    for (int b = 0; b < BLOCK; ++b) { most[b] = x[0]; sum[b] = 0; }
    int64_t c = 0;
    for (; c + BLOCK <= columns; c += BLOCK)
      for (int b = 0; b < BLOCK; ++b) most[b] = x[c + b] > most[b] ? x[c + b] : most[b];
    for (; c < columns; ++c) most[0] = x[c] > most[0] ? x[c] : most[0];
    for (int b = 1; b < BLOCK; ++b) most[0] = most[b] > most[0] ? most[b] : most[0];
    for (c = 0; c + BLOCK <= columns; c += BLOCK)
      for (int b = 0; b < BLOCK; ++b) sum[b] += y[c + b] = exp_of(x[c + b] - most[0]);
    for (; c < columns; ++c) sum[0] += y[c] = exp_of(x[c] - most[0]);
    for (int b = 1; b < BLOCK; ++b) sum[0] += sum[b];
    for (c = 0; c < columns; ++c) y[c] /= sum[0];
  }
  return 0;
}
"""
