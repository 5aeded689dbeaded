"""Translation units of products of experts for the target cpu: blocks of pairs by columns, sums in fp32."""

from __future__ import annotations

from tile_oracle.operations.fused_moe.problem import BLOCKS, SCALED, SCALES, FusedMoeKernel
from tile_oracle.operations.rowwise.cpu_source import translation_unit
from tile_oracle.operations.scaled_gemm.cpu_source import number_table

_PRODUCT = r"""
struct Args {
  const Stored *a, *b;
  const int32_t *routing;
  const float *weights, *scale_a, *scale_b;
  Element *out;
  void *workspace;
  int64_t pairs, pairs_of_row, N, K, lists[5][3];
};

enum { LANES = 16, PADDED_ROWS = 0, EXPERTS = 1, SORTED_PAIRS = 2 };

template <typename Number>
static inline Number number(const Number *values, int64_t at) {  /* which may lie at any byte */
  Number value;
  __builtin_memcpy(&value, (const char *)(values + at), sizeof value);
  return value;
}

/* The product of two rows from `k` to `end`. */
static inline float sum_of(const Stored *a, const Stored *b, int64_t k, int64_t end) {
  float part[LANES] = {0};
  for (; k + LANES <= end; k += LANES)
    for (int i = 0; i < LANES; ++i) part[i] += READ(number(a, k + i)) * READ(number(b, k + i));
  for (; k < end; ++k) part[0] += READ(number(a, k)) * READ(number(b, k));
  for (int i = 1; i < LANES; ++i) part[0] += part[i];
  return part[0];
}

/* COLUMNS columns of a pair's row, from `left` on. */
static inline void part_of_row(const Args *p, int64_t pair, int64_t expert, int64_t left) {
  int64_t row = pair / p->pairs_of_row;
  int64_t depth = (p->K + SCALED - 1) / SCALED, width = (p->N + SCALED - 1) / SCALED;
  const Stored *a = p->a + row * p->K, *b = p->b + expert * p->N * p->K;
  float weight = p->weights ? number(p->weights, pair) : 1;
  for (int64_t n = left; n < p->N && n < left + COLUMNS; ++n) {
    float total = 0;
    if (SCALE == 2 && p->scale_a) {
      const float *of_a = p->scale_a + row * depth;
      const float *of_b = p->scale_b + (expert * width + n / SCALED) * depth;
      for (int64_t i = 0; i < depth; ++i) {
        int64_t end = (i + 1) * SCALED < p->K ? (i + 1) * SCALED : p->K;
        total += sum_of(a, b + n * p->K, i * SCALED, end) * number(of_a, i) * number(of_b, i);
      }
    } else {
      total = sum_of(a, b + n * p->K, 0, p->K);
      if (p->scale_a)
        total *= number(p->scale_a, row * SCALE) * number(p->scale_b, SCALE ? expert * p->N + n : expert);
    }
    Element stored = store(total * weight);
    __builtin_memcpy((char *)(p->out + pair * p->N + n), &stored, sizeof stored);
  }
}

VISIBLE int32_t to_launch(const Args *p) {
#if ROWS == 1
  for (int64_t pair = 0; pair < p->pairs; ++pair)
    for (int64_t left = 0; left < p->N; left += COLUMNS)
      part_of_row(p, pair, number(p->routing, pair), left);
#else
  const int64_t *list = p->lists[LIST];
  int64_t blocks = number(p->routing, list[PADDED_ROWS]) / ROWS;
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t left = 0; left < p->N; left += COLUMNS)
      for (int64_t row = block * ROWS; row < (block + 1) * ROWS; ++row) {
        int64_t pair = number(p->routing, list[SORTED_PAIRS] + row);
        if (pair < p->pairs) part_of_row(p, pair, number(p->routing, list[EXPERTS] + block), left);
      }
#endif
  return 0;
}
"""

_BF16 = "typedef Element Stored;\n#define READ load\n"
_FP8 = "typedef uint8_t Stored;\n#define READ(value) NUMBERS[value]\n"


def cpu_source(kernel: FusedMoeKernel) -> str:
    """Returns the translation unit of a kernel."""
    place = BLOCKS.index(kernel.rows) if kernel.rows in BLOCKS else 0
    macros = {"ROWS": kernel.rows, "COLUMNS": kernel.columns, "LIST": place, "SCALED": SCALED}
    macros["SCALE"] = SCALES.index(kernel.scale)
    stored = (_BF16,) if kernel.dtype == "bf16" else (number_table("NUMBERS", kernel.dtype), _FP8)
    return translation_unit("bf16", macros, *stored, _PRODUCT)
