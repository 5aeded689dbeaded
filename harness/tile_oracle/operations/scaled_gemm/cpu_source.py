"""Translation units of scaled products for the target cpu: `columns` columns of C at a time, sums in fp32."""

from __future__ import annotations

import numpy as np

from tile_oracle.operations.rowwise.cpu_source import translation_unit
from tile_oracle.operations.scaled_gemm.problem import (
    BLOCK,
    MX_BLOCK,
    OPERAND_DTYPES,
    SCALES,
    ScaledGemmKernel,
)
from tile_oracle.problem.number_formats import decode

_PRODUCT = r"""
struct Args {
  const uint8_t *a, *b;
  const Scale *scale_a, *scale_b;
  Element *out;
  void *workspace;
  int64_t M, N, K;
};

enum { LANES = 16 };

static inline float number(const Scale *values, int64_t at) {  /* which need not lie at a multiple of 4 */
  Scale value;
  __builtin_memcpy(&value, (const char *)(values + at), sizeof value);
  return OF_SCALE(value);
}

static inline int code(const uint8_t *row, int64_t k) {  /* of a pair in a byte the first is the lower half */
  return PAIRS ? row[k / 2] >> (k % 2 ? 4 : 0) & 15 : row[k];
}

/* The product of one row of A and one of B from `first` to `end`. */
static inline float sum_of(const uint8_t *a, const uint8_t *b, int64_t first, int64_t end) {
  float part[LANES] = {0};
  int64_t k = first;
  for (; k + LANES <= end; k += LANES)
    for (int i = 0; i < LANES; ++i) part[i] += OF_A[code(a, k + i)] * OF_B[code(b, k + i)];
  for (; k < end; ++k) part[0] += OF_A[code(a, k)] * OF_B[code(b, k)];
  for (int i = 1; i < LANES; ++i) part[0] += part[i];
  return part[0];
}

VISIBLE int32_t to_launch(const Args *p) {
  int64_t blocks = (p->K + BLOCK - 1) / BLOCK, row = PAIRS ? p->K / 2 : p->K;
  for (int64_t left = 0; left < p->N; left += COLUMNS)
    for (int64_t m = 0; m < p->M; ++m)
      for (int64_t n = left; n < p->N && n < left + COLUMNS; ++n) {
        const uint8_t *a = p->a + m * row, *b = p->b + n * row;
        float total = 0;
        if (SCALE >= 2) {
          for (int64_t i = 0; i < blocks; ++i) {
            int64_t end = (i + 1) * BLOCK < p->K ? (i + 1) * BLOCK : p->K;
            total += sum_of(a, b, i * BLOCK, end) * number(p->scale_a, MX ? m * blocks + i : i * p->M + m) *
                     number(p->scale_b, (MX ? n : n / BLOCK) * blocks + i);
          }
        } else {
          total = sum_of(a, b, 0, p->K) * number(p->scale_a, m * SCALE) * number(p->scale_b, n * SCALE);
        }
        Element stored = store(total);
        __builtin_memcpy((char *)(p->out + m * p->N + n), &stored, sizeof stored);
      }
  return 0;
}
"""

_E8M0 = "typedef uint8_t Scale;\n#define OF_SCALE(value) E8M0[value]\n"
_FP32 = "typedef float Scale;\n#define OF_SCALE(value) (value)\n"


def number_table(name: str, dtype: str) -> str:
    """Returns the numbers of all bytes; of pairs the first."""
    values = decode(np.arange(256, dtype=np.uint8)[:, None], dtype)[:, 0]
    texts = (f"{one!r}f" if np.isfinite(one) else '__builtin_nanf("")' for one in values.tolist())
    return f"static const float {name}[] = {{{', '.join(texts)}}};\n"


def cpu_source(kernel: ScaledGemmKernel) -> str:
    """Returns the translation unit of a kernel."""
    mx = kernel.scale == "mx"
    macros = {"COLUMNS": kernel.columns, "SCALE": SCALES.index(kernel.scale), "MX": int(mx)}
    macros |= {"BLOCK": MX_BLOCK if mx else BLOCK, "PAIRS": int(kernel.dtype == "fp4_e2m1")}
    scales = (number_table("E8M0", "e8m0"), _E8M0) if mx else (_FP32,)
    tables = map(number_table, ("OF_A", "OF_B"), OPERAND_DTYPES[kernel.dtype])
    return translation_unit("bf16", macros, *scales, *tables, _PRODUCT)
